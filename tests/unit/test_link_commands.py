"""`links extract` and `links canonical`: JSON lines in, JSON lines out, one for each, in order, come what may."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def run(*arguments: str, given: bytes = b"") -> tuple[int, list[Any], str]:
    command = [sys.executable, "-m", "mistnet", "links", *arguments]
    done = subprocess.run(command, input=given, capture_output=True, check=False, timeout=60)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr.decode()


def lines(*documents: object) -> bytes:
    return b"".join(json.dumps(each, ensure_ascii=False).encode() + b"\n" for each in documents)


def test_each_text_gives_its_urls_and_codes() -> None:
    texts = lines(
        {"text": "A https://shope.ee/30abc B https://s.shopee.tw/4Vac這 C https://shope.ee/30abc"},
        {"text": "￥AbC12dEf3Gh￥ 「好东西」", "id": 7},
        {"text": ""},
    )
    assert run("extract", given=texts) == (
        0,
        [
            {"urls": ["https://shope.ee/30abc", "https://s.shopee.tw/4Vac"], "codes": [], "title_hint": None},
            {"urls": [], "codes": ["AbC12dEf3Gh"], "title_hint": "好东西"},
            {"urls": [], "codes": [], "title_hint": None},
        ],
        "",
    )


def test_each_url_gets_its_name_or_the_reason_of_its_refusal(tmp_path: Path) -> None:
    file = tmp_path / "urls.jsonl"
    file.write_bytes(
        lines(
            {"url": "https://shopee.tw/無線-i.1.99999999999999999999"},
            {"url": "https://s.shopee.tw/abc?x=1"},
            {"url": "https://shopee.tw/"},
            {"url": "example.com/?utm_source=x&b=1"},
            {"url": "https://fakeshopee.tw/product/1/2"},
        )
    )
    code, answers, _ = run("canonical", str(file))
    item, short, other, page, refused = answers
    assert code == 0
    assert item == {
        "platform": "shopee",
        "kind": "item",
        "ids": {"region": "tw", "shop_id": "1", "item_id": "99999999999999999999"},
        "canonical": "https://shopee.tw/product/1/99999999999999999999",
        "refused": None,
        "url_norm": "https://shopee.tw/product/1/99999999999999999999",
    }
    assert (short["kind"], short["canonical"], short["url_norm"]) == ("short", None, "https://s.shopee.tw/abc")
    assert (other["platform"], other["kind"], other["canonical"]) == ("shopee", "other", None)
    assert (page["platform"], page["kind"], page["canonical"]) == (None, "page", "https://example.com/?b=1")
    assert (refused["platform"], refused["kind"], refused["canonical"]) == (None, "reject", None)
    assert "looks like shopee" in refused["refused"]


def test_a_bad_line_is_answered_in_its_place_and_told_by_the_exit_code() -> None:
    given = lines({"text": "a.com"}) + b'nonsense\n{"text": 3}\n\n\xff\xfe\n' + b'{"text": "b.com"}'
    code, answers, said = run("extract", given=given)
    assert code == 3
    assert [answer.get("urls") for answer in answers] == [["a.com"], None, None, None, None, ["b.com"]]
    assert [answer["line"] for answer in answers if "error" in answer] == [2, 3, 4, 5]
    assert said.startswith("mistnet: error: 4 of the lines could not be read")


def test_a_file_that_is_not_there_is_wrong_usage() -> None:
    code, answers, said = run("canonical", "/nowhere/at/all")
    assert (code, answers) == (2, [])
    assert said.count("\n") == 1


def test_an_answer_comes_before_the_next_line_is_asked() -> None:
    command = [sys.executable, "-m", "mistnet", "links", "canonical"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as talking:
        assert talking.stdin
        assert talking.stdout
        for number in range(3):
            talking.stdin.write(lines({"url": f"https://shopee.tw/product/1/{number}"}))
            talking.stdin.flush()
            assert json.loads(talking.stdout.readline())["ids"]["item_id"] == str(number)
        talking.stdin.close()
        assert talking.wait(timeout=30) == 0
