#!/bin/sh
# Makes the env files that deploy/compose.yaml reads, each with passwords nobody knows. Files that are there stay as they are.
#   sh deploy/make-secrets.sh [FOLDER]
set -eu
umask 077
folder=${1:-$(dirname "$0")/secrets}
mkdir -p "$folder"

secret() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }

present=""
for name in postgres rabbitmq mistnet grafana; do
    if [ -e "$folder/$name.env" ]; then present="$present $name.env"; fi
done
if [ -n "$present" ]; then
    echo "left as they are in $folder:$present" >&2
    echo "To make all of them anew, move them away first; the databases keep their old passwords." >&2
    exit 1
fi

database=$(secret)
broker=$(secret)

cat > "$folder/postgres.env" <<END
POSTGRES_USER=mistnet
POSTGRES_DB=mistnet
POSTGRES_PASSWORD=$database
END
cat > "$folder/rabbitmq.env" <<END
RABBITMQ_DEFAULT_USER=mistnet
RABBITMQ_DEFAULT_VHOST=mistnet
RABBITMQ_DEFAULT_PASS=$broker
END
cat > "$folder/grafana.env" <<END
GF_SECURITY_ADMIN_USER=admin
GF_SECURITY_ADMIN_PASSWORD=$(secret)
END
cat > "$folder/mistnet.env" <<END
MISTNET_DATABASE_URL=postgresql://mistnet:$database@postgres:5432/mistnet
MISTNET_BROKER_URL=amqp://mistnet:$broker@rabbitmq:5672/mistnet
MISTNET_ADMIN_TOKEN=$(secret)
MISTNET_CRAWL_LANES=shopee,taobao,ebay,web
MISTNET_AMQP_LANES=["shopee","taobao","ebay","web"]
MISTNET_LOG_FORMAT=json
# At most so many credits of X in a day (UTC); 100,000 are one US dollar.
MISTNET_X_DAY_CREDITS=200000
# Fill in what you have and take the # away:
#MISTNET_X_API_KEY=
#MISTNET_THREADS_TOKEN=
END
echo "made in $folder: postgres.env rabbitmq.env mistnet.env grafana.env; add your keys to mistnet.env"
