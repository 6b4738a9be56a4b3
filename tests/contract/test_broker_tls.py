"""amqps with certificates of both sides, over a real TLS listener that refuses clients without one."""

import gc
from pathlib import Path

import aio_pika
import pytest

from mistnet.app import Via
from mistnet.kit.errors import SettingsError
from mistnet.queue.errors import BrokerError, BrokerRefused, BrokerUnreachable
from mistnet.queue.model import Done, Job, Outcome
from mistnet.queue.rabbitmq.connection import BrokerAddress, BrokerConnector
from tests.brokered import add, brokered, effects, kind
from tests.services.certificates import Certificates, certificates_in
from tests.services.rabbitmq import SharedNode
from tests.support import Effect, Number, new


async def effect(job: Job[Number]) -> Outcome:
    return Done([Effect(job_id=job.id)])


@pytest.fixture
def certificates(rabbit: SharedNode) -> Certificates:
    return certificates_in(Path(rabbit.tls))


@pytest.fixture
def secure_url(rabbit: SharedNode, broker_url: str) -> str:
    return broker_url.replace("amqp://", "amqps://").replace(f":{rabbit.port}/", f":{rabbit.tls_port}/")


async def test_jobs_go_over_tls_with_certificates_of_both_sides(
    sqlite_url: str, secure_url: str, certificates: Certificates
) -> None:
    files = {
        "broker_ca_file": certificates.authority,
        "broker_cert_file": certificates.client,
        "broker_key_file": certificates.client_key,
    }
    async with brokered(sqlite_url, secure_url, kind(handler=effect), **files) as app:
        await add(app, *(new(key=str(n)) for n in range(3)))
        async with app.worker(via=Via.AMQP, until_idle=True) as worker:
            await worker.run()
        assert len(await effects(app)) == 3


async def test_a_server_of_a_stranger_is_refused(sqlite_url: str, secure_url: str, certificates: Certificates) -> None:
    async with brokered(sqlite_url, secure_url, kind(), broker_ca_file=certificates.stranger) as app:
        with pytest.raises(BrokerRefused, match="certificate") as caught:
            await app.dispatching.declare()
    assert "guest:guest" not in str(caught.value)


async def test_without_a_certificate_of_ours_the_server_lets_us_not_in(
    sqlite_url: str, secure_url: str, certificates: Certificates
) -> None:
    async with brokered(sqlite_url, secure_url, kind(), broker_ca_file=certificates.authority) as app:
        with pytest.raises(BrokerError):
            await app.dispatching.declare()


async def test_a_certificate_that_is_not_there_is_a_setting_to_mend(sqlite_url: str, secure_url: str) -> None:
    async with brokered(sqlite_url, secure_url, kind(), broker_ca_file=Path("/nowhere/ca.pem")) as app:
        with pytest.raises(SettingsError, match=r"broker_ca_file: /nowhere/ca\.pem cannot be used: No such file"):
            await app.dispatching.declare()


@pytest.mark.parametrize("via", [None, Via.AMQP])
async def test_a_worker_ends_with_the_name_of_the_certificate_that_is_not_there(
    sqlite_url: str, secure_url: str, certificates: Certificates, via: Via | None
) -> None:
    files = {"broker_ca_file": certificates.authority, "broker_cert_file": Path("/nowhere/client.pem")}
    async with brokered(sqlite_url, secure_url, kind(), **files) as app:
        with pytest.raises(SettingsError, match=r"broker_cert_file: /nowhere/client\.pem cannot be used"):
            async with app.worker(via=via, until_idle=True) as worker:
                await worker.run()


async def test_wrong_credentials_are_refused_and_not_repeated(sqlite_url: str, broker_url: str) -> None:
    wrong = broker_url.replace("guest:guest", "guest:s3cret%2Fword")
    async with brokered(sqlite_url, wrong, kind()) as app:
        with pytest.raises(BrokerRefused) as caught:
            await app.dispatching.declare()
        assert "s3cret" not in str(caught.value)
        assert {"s3cret%2Fword", "s3cret/word"} <= set(app.secrets)


async def test_a_refused_connection_is_closed(broker_url: str) -> None:
    wrong = broker_url.replace("guest:guest", "guest:left-open")
    with pytest.raises(BrokerRefused) as caught:
        await BrokerConnector(BrokerAddress(url=wrong)).connect()
    held = [each for each in gc.get_objects() if isinstance(each, aio_pika.Connection) and "left-open" in str(each.url)]
    assert [each.is_closed for each in held] == [True], caught.traceback


async def test_a_missing_virtual_host_is_reported(sqlite_url: str, broker_url: str) -> None:
    async with brokered(sqlite_url, broker_url + "-not", kind()) as app:
        with pytest.raises(BrokerRefused, match=r"no virtual host .*-not.*or the user may not use it") as caught:
            await app.dispatching.declare()
    assert "object at" not in str(caught.value)


async def test_a_worker_that_is_refused_at_its_start_ends_with_that(sqlite_url: str, broker_url: str) -> None:
    for wrong in (broker_url + "-not", broker_url.replace("guest:guest", "guest:s3cret")):
        async with brokered(sqlite_url, wrong, kind()) as app:
            with pytest.raises(BrokerRefused):
                async with app.worker(via=Via.AMQP, until_idle=True) as worker:
                    await worker.run()


async def test_a_broker_that_does_not_listen_is_unreachable(sqlite_url: str) -> None:
    async with brokered(sqlite_url, "amqp://me:hush-hush@127.0.0.1:1/", kind()) as app:
        with pytest.raises(BrokerUnreachable, match="does not answer") as caught:
            await app.dispatching.declare()
        assert "hush-hush" not in str(caught.value)
