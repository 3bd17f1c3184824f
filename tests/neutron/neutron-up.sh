#!/usr/bin/env bash
# neutron-up.sh DIR [noauth|headers|keystone]
#
# Starts a real OpenStack Neutron API server (PyPI neutron 29.0.0, ML2 plugin,
# SQLite file, no agents, no message bus) on 127.0.0.1, in DIR, in the
# background; waits until it answers; prints NEUTRON_URL=... and NEUTRON_PID=...
# (with keystone also KEYSTONE_URL and KEYSTONE_PID) and writes them to DIR/env.
# Needs bash, curl, flock and Python 3.11 or newer; no root, no system package.
#
#   noauth    no token; every request WITHOUT X-Project-Id is an admin of
#             project "fake_project_id"; other projects by "project_id" in bodies
#   headers   Neutron's real policy engine, identity taken from request headers:
#             X-User-Id (else 401), X-Project-Id, X-Roles: member,reader | admin;
#             roles imply nothing here: an admin sends admin,member,reader
#   keystone  a real Keystone beside it; real fernet tokens in X-Auth-Token
#             (user admin / password secret / project admin / domain default)
#
# Environment: NEUTRON_PORT, KEYSTONE_PORT (default: the port this DIR had last
#   time, else a free one), NEUTRON_VENV (default ~/.cache/neutron-29-venv; made
#   on first use, some 420 MB, 20 s to a minute), NEUTRON_FRESH=1 drops the old
#   databases, NEUTRON_THREADS (default 1; more makes SQLite answer 500),
#   NEUTRON_QUOTA_NETWORK, NEUTRON_QUOTA_SUBNET (1000), NEUTRON_VNI_RANGES
#   (1:2000; 1:5 soon answers 503), NEUTRON_SERVICE_PLUGINS (router),
#   KEYSTONE_TOKEN_SECONDS (3600).
# Stop:    neutron-up.sh stop DIR
# Restart: run it again on the same DIR: databases, ports and tokens are kept.
set -euo pipefail

die() { echo "neutron-up: $*" >&2; exit 1; }

alive() { [ -s "$1" ] && kill -0 "$(cat "$1")" 2>/dev/null &&
          grep -qz "$DIR/" "/proc/$(cat "$1")/cmdline" 2>/dev/null; }

stop_one() { # PIDFILE
  alive "$1" || { rm -f "$1"; return 0; }
  local p; p=$(cat "$1"); kill -TERM "$p" 2>/dev/null || true
  for _ in $(seq 50); do kill -0 "$p" 2>/dev/null || break; sleep 0.1; done
  kill -KILL "$p" 2>/dev/null || true
  rm -f "$1"
}

if [ "${1:-}" = stop ]; then
  DIR=$(realpath "${2:?usage: neutron-up.sh stop DIR}")
  stop_one "$DIR/neutron.pid"; stop_one "$DIR/keystone.pid"; exit 0
fi

mkdir -p "${1:?usage: neutron-up.sh DIR [noauth|headers|keystone]}"
DIR=$(realpath "$1"); MODE=${2:-noauth}
case $MODE in noauth|headers|keystone) ;; *) die "unknown mode $MODE";; esac
VENV=${NEUTRON_VENV:-${HOME:-$PWD}/.cache/neutron-29-venv}
PY=$VENV/bin/python

# ---------------------------------------------------------------- install
# Exact versions (pip freeze of a set that works together), so that a new
# release of one of the ~140 packages can't break the tests.
read -r -d '' REQ_NEUTRON <<'EOR' || true
alembic==1.20.1
amqp==5.4.2
attrs==26.1.0
autopage==0.6.0
bcrypt==5.0.0
cachetools==8.0.0
certifi==2026.10.18
cffi==2.1.1
charset-normalizer==3.5.2
cliff==4.17.0
cmd2==4.3.1
cotyledon==2.2.0
cryptography==50.0.2
debtcollector==3.1.0
decorator==5.3.1
dnspython==2.9.2
dogpile.cache==1.5.0
eventlet==0.41.3
fasteners==0.20
fixtures==4.3.2
futurist==3.5.0
greenlet==3.5.6
httplib2==0.32.1
idna==3.20
invoke==3.0.3
iso8601==2.1.0
Jinja2==3.1.6
jmespath==1.1.0
jsonpatch==1.47
jsonpointer==3.12
jsonschema-specifications==2025.9.1
jsonschema==4.26.0
keystoneauth1==5.18.1
keystonemiddleware==13.0.1
kombu==5.7.0
lxml==6.1.3
Mako==1.4.3
markdown-it-py==4.3.0
MarkupSafe==3.0.4
mdurl==0.1.2
msgpack==1.2.4
ncclient==0.7.1
netaddr==1.3.0
neutron-lib==5.0.1
neutron==29.0.0
openstacksdk==4.22.0
os-ken==4.2.2
os-resource-classes==1.1.0
os-service-types==1.9.0
os-traits==3.9.0
osc-lib==4.7.0
oslo.cache==4.3.0
oslo.concurrency==7.6.1
oslo.config==10.7.0
oslo.context==6.5.0
oslo.db==18.1.1
oslo.i18n==6.9.0
oslo.log==8.3.2
oslo.messaging==18.3.1
oslo.metrics==0.17.0
oslo.middleware==8.2.0
oslo.policy==6.0.1
oslo.privsep==3.12.0
oslo.reports==3.9.0
oslo.rootwrap==7.10.0
oslo.serialization==5.11.0
oslo.service==4.8.0
oslo.upgradecheck==2.8.0
oslo.utils==10.2.0
oslo.versionedobjects==3.12.0
osprofiler==4.4.0
os_vif==5.3.0
ovs==4.0.0
ovsdbapp==3.0.0
packaging==26.3
paramiko==5.1.0
Paste==3.10.1
PasteDeploy==3.1.0
pbr==7.1.3
pecan==1.8.0
platformdirs==4.14.5
prettytable==3.18.0
prometheus_client==0.26.0
prompt_toolkit==3.0.53
psutil==7.2.2
pycadf==4.1.0
pycparser==3.12
Pygments==2.21.0
PyJWT==2.15.1
PyNaCl==1.6.2
pyOpenSSL==26.4.0
pyparsing==3.3.3
pyperclip==1.11.0
pyroute2==0.9.7
python-dateutil==4.0.0
python-designateclient==7.0.0
python-keystoneclient==6.0.0
python-novaclient==18.13.1
PyYAML==6.0.3
referencing==0.37.0
repoze-lru==0.8
requests==2.34.2
rfc3986==2.0.0
rich-argparse==1.8.0
rich==15.0.0
Routes==2.5.1
rpds-py==2026.9.1
setproctitle==1.3.8
six==1.17.0
sortedcontainers==2.4.0
SQLAlchemy==2.1.9
statsd==4.0.1
stevedore==5.10.0
tenacity==9.2.1
testresources==2.1.2
testscenarios==0.7.0
tooz==9.1.0
typing_extensions==4.16.0
tzdata==2026.6
urllib3==2.8.0
vine==5.1.0
voluptuous==0.16.0
waitress==3.0.2
wcwidth==0.9.4
WebOb==1.8.11
wrapt==2.5.2
yappi==1.7.6
EOR
read -r -d '' REQ_KEYSTONE <<'EOR' || true
aniso8601==10.0.1
blinker==1.9.0
click==8.5.1
defusedxml==0.7.1
elementpath==4.8.0
Flask-RESTful==0.3.10
Flask==3.1.3
itsdangerous==2.2.0
keystone==30.0.0
oauthlib==4.0.1
pysaml2==7.5.5
pytz==2026.6
Werkzeug==3.1.9
xmlschema==2.5.1
EOR

install_venv() (
  mkdir -p "$(dirname "$VENV")" || exit 1
  exec 9>"$VENV.lock"; flock 9              # two callers at once: one installs
  want=$(printf '%s\n%s\n' "$REQ_NEUTRON" "$REQ_KEYSTONE" | sha256sum)
  [ "$(cat "$VENV/.ready" 2>/dev/null)" = "$want" ] && exit 0
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "neutron-up: needs Python 3.11 or newer" >&2; exit 1; }
  echo "neutron-up: installing into $VENV" >&2
  rm -rf "$VENV" && python3 -m venv "$VENV" || exit 1
  printf '%s\n%s\n' "$REQ_NEUTRON" "$REQ_KEYSTONE" > "$VENV/requirements.txt"
  # uv does in 5 s what pip does in 60 s
  if ! { "$VENV/bin/pip" install -q --disable-pip-version-check uv==0.13.8 &&
         "$VENV/bin/uv" pip install -q --compile-bytecode --no-deps --python "$PY" -r "$VENV/requirements.txt"; } >&2; then
    echo "neutron-up: uv failed, trying pip" >&2
    "$VENV/bin/pip" install -q --disable-pip-version-check --no-deps -r "$VENV/requirements.txt" >&2 || exit 1
  fi
  "$PY" -W ignore -c 'import keystone.server, neutron.server, waitress' || exit 1
  echo "$want" > "$VENV/.ready"
)
install_venv || die "install failed"

# ---------------------------------------------------------------- helpers
cat > "$DIR/serve.py" <<'EOP'
"""serve.py MODULE PORT: one WSGI application on 127.0.0.1."""
import importlib, logging, os, sys, warnings
warnings.simplefilter("ignore")
module, port = sys.argv[1], int(sys.argv[2])
sys.argv = sys.argv[:1]                      # oslo.config reads sys.argv
app = importlib.import_module(module).application
from waitress import create_server
logging.getLogger("waitress.queue").setLevel(logging.ERROR)
server = create_server(app, host="127.0.0.1", port=port,
                       threads=int(os.environ.get("NEUTRON_THREADS", "1")),
                       connection_limit=1000, channel_timeout=300)
server.run()
EOP
cat > "$DIR/mkdb.py" <<'EOP'
"""mkdb.py URL: all of Neutron's tables. (neutron-db-manage can't do SQLite:
its migrations ALTER constraints.)"""
import sys, warnings
warnings.simplefilter("ignore")
from sqlalchemy import create_engine
from neutron.db.migration.models import head
head.get_metadata().create_all(create_engine(sys.argv[1]))
EOP

pick_port() { # NAME ASKED: what was asked for, else the port of last time, else a free one
  if [ -n "$2" ] && [ "$2" != 0 ]; then echo "$2" > "$DIR/$1.port"
  elif [ ! -s "$DIR/$1.port" ]; then
    "$PY" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])' > "$DIR/$1.port"
  fi
  cat "$DIR/$1.port"
}

start() { # NAME MODULE PORT
  local name=$1 module=$2 port=$3
  PYTHONWARNINGS=ignore setsid nohup "$PY" "$DIR/serve.py" "$module" "$port" \
    >> "$DIR/$name.log" 2>&1 < /dev/null &
  echo $! > "$DIR/$name.pid"
  for _ in $(seq 600); do
    kill -0 "$(cat "$DIR/$name.pid")" 2>/dev/null ||
      { tail -30 "$DIR/$name.log" >&2; die "$name died while starting"; }
    curl -s -o /dev/null --max-time 5 "http://127.0.0.1:$port/" && return 0
    sleep 0.1
  done
  tail -30 "$DIR/$name.log" >&2; die "$name did not answer within 60 s"
}

stop_one "$DIR/neutron.pid"; stop_one "$DIR/keystone.pid"
[ "${NEUTRON_FRESH:-}" = 1 ] && rm -rf "$DIR"/*.sqlite* "$DIR"/*.port "$DIR/fernet" "$DIR/credential" "$DIR"/*.log
mkdir -p "$DIR/state" "$DIR/lock"

NPORT=$(pick_port neutron "${NEUTRON_PORT:-}")
URL=http://127.0.0.1:$NPORT

# ---------------------------------------------------------------- keystone
KEYSTONE_URL=
if [ "$MODE" = keystone ]; then
  KPORT=$(pick_port keystone "${KEYSTONE_PORT:-}")
  KEYSTONE_URL=http://127.0.0.1:$KPORT/v3
  cat > "$DIR/keystone.conf" <<EOF
[DEFAULT]
log_dir =
[database]
connection = sqlite:///$DIR/keystone.sqlite
sqlite_synchronous = false
[token]
expiration = ${KEYSTONE_TOKEN_SECONDS:-3600}
[fernet_tokens]
key_repository = $DIR/fernet
[fernet_receipts]
key_repository = $DIR/fernet
[credential]
key_repository = $DIR/credential
[identity]
password_hash_rounds = 4
EOF
  export OS_KEYSTONE_CONFIG_DIR=$DIR OS_KEYSTONE_CONFIG_FILES=keystone.conf
  km() { "$VENV/bin/keystone-manage" --config-file "$DIR/keystone.conf" "$@" >> "$DIR/keystone.log" 2>&1 ||
         { tail -20 "$DIR/keystone.log" >&2; die "keystone-manage $1 failed"; }; }
  if [ ! -s "$DIR/keystone.sqlite" ]; then
    mkdir -p "$DIR/fernet" "$DIR/credential"; chmod 700 "$DIR/fernet" "$DIR/credential"
    km db_sync
    km fernet_setup --keystone-user "$(id -un)" --keystone-group "$(id -gn)"
    km credential_setup --keystone-user "$(id -un)" --keystone-group "$(id -gn)"
    km bootstrap --bootstrap-password secret --bootstrap-region-id RegionOne \
      --bootstrap-public-url "$KEYSTONE_URL" --bootstrap-internal-url "$KEYSTONE_URL" \
      --bootstrap-admin-url "$KEYSTONE_URL"
    NEW_KEYSTONE=1
  fi
  start keystone keystone.wsgi.api "$KPORT"
  if [ "${NEW_KEYSTONE:-}" = 1 ]; then    # Neutron in the service catalog
    ks() { curl -sSf --max-time 30 -H 'Content-Type: application/json' "$@"; }
    TOKEN=$(ks -D- -o /dev/null "$KEYSTONE_URL/auth/tokens" -d '{"auth":{"identity":{"methods":["password"],"password":{"user":{"name":"admin","domain":{"id":"default"},"password":"secret"}}},"scope":{"project":{"name":"admin","domain":{"id":"default"}}}}}' |
      tr -d '\r' | awk 'tolower($1)=="x-subject-token:"{print $2}')
    SID=$(ks -H "X-Auth-Token: $TOKEN" "$KEYSTONE_URL/services" -d '{"service":{"type":"network","name":"neutron"}}' |
      "$PY" -c 'import json,sys; print(json.load(sys.stdin)["service"]["id"])')
    ks -o /dev/null -H "X-Auth-Token: $TOKEN" "$KEYSTONE_URL/endpoints" \
      -d "{\"endpoint\":{\"service_id\":\"$SID\",\"interface\":\"public\",\"region_id\":\"RegionOne\",\"url\":\"$URL\"}}"
  fi
fi

# ---------------------------------------------------------------- neutron
STRATEGY=keystone; [ "$MODE" = noauth ] && STRATEGY=noauth
cp "$VENV/etc/neutron/api-paste.ini" "$DIR/api-paste.ini"
[ "$MODE" = headers ] &&     # the same pipeline less the token check
  sed -i -E 's/^(keystone = .*)authtoken keystonecontext/\1keystonecontext/' "$DIR/api-paste.ini"
cat > "$DIR/neutron.conf" <<EOF
[DEFAULT]
auth_strategy = $STRATEGY
api_paste_config = $DIR/api-paste.ini
core_plugin = ml2
# the default plugins (tag, timestamp, revisions, network-ip-availability,
# flavors, auto-allocate) are loaded beside these
service_plugins = ${NEUTRON_SERVICE_PLUGINS-router}
# no message bus: casts go nowhere
transport_url = fake://
rpc_workers = 0
rpc_state_report_workers = 0
dhcp_agent_notification = false
notify_nova_on_port_status_changes = false
notify_nova_on_port_data_changes = false
state_path = $DIR/state
default_log_levels = neutron.quota.resource_registry=ERROR
[database]
connection = sqlite:///$DIR/neutron.sqlite
sqlite_synchronous = false
[oslo_concurrency]
lock_path = $DIR/lock
[oslo_messaging_notifications]
driver = noop
[quotas]
quota_network = ${NEUTRON_QUOTA_NETWORK:-1000}
quota_subnet = ${NEUTRON_QUOTA_SUBNET:-1000}
[keystone_authtoken]
www_authenticate_uri = $KEYSTONE_URL
auth_url = $KEYSTONE_URL
auth_type = password
username = admin
password = secret
project_name = admin
user_domain_id = default
project_domain_id = default
token_cache_time = -1
http_connect_timeout = 5
http_request_max_retries = 1
[ml2]
type_drivers = local,flat,vlan,vxlan
project_network_types = vxlan
mechanism_drivers =
extension_drivers = port_security
[ml2_type_flat]
flat_networks = physnet1
[ml2_type_vlan]
network_vlan_ranges = physnet1:100:199
[ml2_type_vxlan]
vni_ranges = ${NEUTRON_VNI_RANGES:-1:2000}
EOF
if [ ! -s "$DIR/neutron.sqlite" ]; then
  "$PY" "$DIR/mkdb.py" "sqlite:///$DIR/neutron.sqlite" >> "$DIR/neutron.log" 2>&1 ||
    { tail -20 "$DIR/neutron.log" >&2; die "making the tables failed"; }
fi
export OS_NEUTRON_CONFIG_DIR=$DIR OS_NEUTRON_CONFIG_FILES=neutron.conf
start neutron neutron.wsgi.api "$NPORT"

# a real answer through paste, policy, plugin and database, not just the port
want=200; [ "$MODE" = keystone ] && want=401
got=$(curl -s -o "$DIR/probe.out" -w '%{http_code}' --max-time 30 -H 'X-User-Id: probe' "$URL/v2.0/networks?limit=1&fields=id" || true)
[ "$got" = "$want" ] || { tail -30 "$DIR/neutron.log" >&2; die "probe got $got, wanted $want"; }

{ echo "NEUTRON_URL=$URL"; echo "NEUTRON_PID=$(cat "$DIR/neutron.pid")"; echo "NEUTRON_MODE=$MODE"
  [ -n "$KEYSTONE_URL" ] && { echo "KEYSTONE_URL=$KEYSTONE_URL"; echo "KEYSTONE_PID=$(cat "$DIR/keystone.pid")"; }
  true; } | tee "$DIR/env"
