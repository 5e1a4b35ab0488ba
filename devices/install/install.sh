#!/bin/sh
# Installs Edgeflock on a device, or with --server on a server; run again, it upgrades. See docs/install.md.
#
#   EDGEFLOCK_URL=https://192.0.2.1:8470 EDGEFLOCK_TOKEN=ef1... sh install.sh --from WHEEL --data csv:/data/mine.csv?label=state
#   sh install.sh --uninstall
#
# All of it is in a function, so that a download that broke off runs nothing.
set -eu

usage() {
    cat <<'USAGE'
Usage: sh install.sh [OPTIONS]

  --from WHAT     a wheel, a clone, the URL of a wheel, or the URL of a package index that has edgeflock;
                  default: the clone that this script is in
  --data URI      what this device trains on [client.data]
  --server        install a server in the place of a device
  --extras NAMES  what to install with it, e.g. onnx,streams; default: onnx, or torch where onnxruntime has no
                  wheel; of a server: server
  --no-service    install no systemd unit
  --uninstall     remove it; settings, credentials and runs stay
  --purge         with --uninstall: remove those, too

EDGEFLOCK_URL and EDGEFLOCK_TOKEN: join this server with this token, unless the device has joined already.
As root it goes to /opt/edgeflock, with a systemd unit where there is systemd; else to the user's home.
PYTHON: the Python to use. Run again, it upgrades, and goes back if the new version does not come up.
USAGE
}

say() { printf '%s\n' "edgeflock: $*"; }
fail() { say "$*" >&2; exit 1; }

# Where everything goes.
places() {
    root=${EDGEFLOCK_ROOT:-}  # for tests: put before every path
    if [ "$(id -u)" = 0 ]; then
        as_root=yes
        prefix=$root/opt/edgeflock/$role bin=$root/usr/local/bin settings=$root/etc/edgeflock
        state=$root/var/lib/edgeflock-$role
        # A Python in root's home is none for the service's user.
        system=/usr/bin/python3
    else
        as_root=no
        prefix=$root${XDG_DATA_HOME:-$HOME/.local/share}/edgeflock/$role bin=$root$HOME/.local/bin
        settings=$root${XDG_CONFIG_HOME:-$HOME/.config}/edgeflock
        state=$prefix/state
        system=
    fi
    units=$root/etc/systemd/system
    unit=edgeflock-$role.service
    current=$prefix/current
}

# systemd runs here, and this may put units into it.
has_systemd() {
    [ "$as_root" = yes ] && [ "$service" = yes ] && [ -d "$root/run/systemd/system" ] &&
        command -v systemctl >/dev/null 2>&1
}

# What this machine is; refuses those for which nothing that trains has wheels.
look_at_machine() {
    machine=$(uname -m)
    board=$(tr -d '\0' 2>/dev/null <"$root/proc/device-tree/model" || true)
    case $board in
        *Raspberry*) kind="a Raspberry Pi ($board)" ;;
        *NVIDIA* | *Jetson* | quill*) kind="a Jetson ($board)" ;;
        ?*) kind=$board ;;
        *) kind="a machine" ;;
    esac
    case $machine in
        x86_64 | amd64 | aarch64 | arm64) ;;
        armv6l | armv7l | armv8l)
            fail "$kind with a 32-bit system ($machine), for which neither onnxruntime nor torch has wheels:" \
                "install the 64-bit one (of Raspberry Pi OS: '64-bit' in the Imager)" ;;
        *) fail "$machine: neither onnxruntime nor torch has wheels for it; 64-bit Arm and x86 are what works" ;;
    esac
    if [ "$(getconf LONG_BIT 2>/dev/null || echo 64)" = 32 ]; then
        fail "$kind with a 64-bit kernel and a 32-bit system, for which there are no wheels: install the 64-bit system"
    fi
    for loader in "$root"/lib/ld-musl-*; do
        if [ -e "$loader" ]; then
            fail "this system's C library is musl, for which onnxruntime has no wheels: use one with glibc," \
                "such as Debian, Ubuntu or Fedora"
        fi
    done
    say "on $kind, $machine"
}

# A Python that will do; where there is none, but uv, uv's.
find_python() {
    for python in ${PYTHON:-} $system python3 python3.14 python3.13 python3.12 python3.11; do
        if "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            return
        fi
    done
    if command -v uv >/dev/null 2>&1; then
        python=uv
        return
    fi
    fail "no Python 3.11 or newer with venv: apt install python3 python3-venv; if this system's is older" \
        "(Ubuntu 22.04, JetPack 6), install uv (https://docs.astral.sh/uv/), and run this again"
}

make_venv() {
    if [ "$python" = uv ]; then
        UV_PYTHON_INSTALL_DIR=$prefix/python uv venv --quiet --seed --python 3.12 "$1"
    else
        "$python" -m venv "$1"
    fi
}

# pip_install VENV EXTRAS: install $from with them.
pip_install() {
    case $from in
        http://*.whl | https://*.whl) set -- "$1" "edgeflock[$2] @ $from" ;;
        # One index alone: a package of that name elsewhere is none of ours.
        http://* | https://*) set -- "$1" --upgrade --index-url "$from" "edgeflock[$2]" ;;
        *) set -- "$1" "${from}[$2]" ;;
    esac
    venv=$1
    shift
    [ ! -f "$from/constraints.txt" ] || set -- -c "$from/constraints.txt" "$@"
    "$venv/bin/python" -m pip --disable-pip-version-check install --quiet "$@"
}

# A new environment beside the present one; on failure nothing has changed.
build() {
    fresh=$prefix/versions/$(date -u +%Y%m%dT%H%M%S)-$$
    mkdir -p "$prefix/versions"
    say "installing into $fresh, which takes some minutes on a small device"
    if ! make_venv "$fresh"; then
        rm -rf "$fresh"
        fail "no virtual environment can be made in $fresh (Debian: apt install python3-venv)"
    fi
    for chosen in ${extras:-$backends}; do
        if pip_install "$fresh" "$chosen"; then
            if version=$("$fresh/bin/edgeflock" --version) && [ -n "$version" ]; then
                say "installed edgeflock $version with $chosen"
                return
            fi
            rm -rf "$fresh"
            fail "the new version does not start; nothing was changed"
        fi
        say "'$chosen' cannot be installed here"
    done
    rm -rf "$fresh"
    fail "nothing was changed: pip's lines above say what is missing"
}

# switch_to VENV: from now on this one is run.
switch_to() {
    ln -sfn "$1" "$current"
    mkdir -p "$bin"
    ln -sfn "$current/bin/edgeflock" "$bin/edgeflock"
}

# put_unit VENV: the unit that came with it.
put_unit() {
    for shipped in "$1"/lib/python3*/site-packages/edgeflock/devices/install/"$unit"; do
        cp "$shipped" "$units/$unit"
        chmod 644 "$units/$unit"
    done
    systemctl daemon-reload
}

# Whether the unit is up, and stays up for a while without having been started again.
stays_up() {
    systemctl restart "$unit" || return 1
    waited=0
    while [ "$waited" -lt "${EDGEFLOCK_SETTLE:-15}" ]; do
        systemctl is-active --quiet "$unit" || return 1
        sleep 1
        waited=$((waited + 1))
    done
    systemctl is-active --quiet "$unit" && [ "$(systemctl show -p NRestarts --value "$unit")" = 0 ]
}

# A user of its own, who owns its state and reads its settings.
make_user() {
    id edgeflock >/dev/null 2>&1 ||
        useradd --system --user-group --home-dir /nonexistent --no-create-home --shell /usr/sbin/nologin edgeflock
}

owned() {
    if [ "$as_root" = yes ]; then
        chown -R edgeflock:edgeflock "$state"
        chown -R root:edgeflock "$settings"
    fi
}

# quoted TEXT: as a string of TOML.
quoted() { printf '"%s"' "$(printf '%s' "$1" | sed 's/[\\"]/\\&/g')"; }

# The settings, unless there are some.
write_settings() {
    mkdir -p "$settings" "$state"
    chmod 750 "$settings"
    chmod 700 "$state"
    config=$settings/$role.toml
    if [ ! -e "$config" ]; then
        (
            umask 027
            if [ "$role" = server ]; then
                printf '%s\n' "# 'edgeflock config' prints every setting with its default." '[server]' \
                    "directory = $(quoted "${state#"$root"}")"
            else
                printf '%s\n' "# 'edgeflock config' prints every setting with its default." '[client]' \
                    "identity = $(quoted "${state#"$root"}/identity.json")" \
                    "directory = $(quoted "${state#"$root"}")"
                [ -z "$data" ] || printf 'data = %s\n' "$(quoted "$data")"
            fi
        ) >"$config"
        say "settings are in $config"
    elif [ -n "$data" ]; then
        say "$config is there already and stays as it is: set client.data there"
    fi
}

# With the token on standard input: whatever stands in a command line, every user reads in ps.
join() {
    if [ -e "$state/identity.json" ]; then
        say "this device has joined already; its credential stays"
    elif [ -n "$url" ] && [ -n "$token" ]; then
        insecure=
        case $url in http://*) insecure=--insecure ;; esac
        printf '%s\n' "$token" | "$current/bin/edgeflock" client join "$url" ${insecure:+"$insecure"} \
            --token-file - --identity "$state/identity.json" ||
            fail "it is installed, but has not joined: see the line above; run this again once that is mended"
    fi
}

# Starts the service of a new installation, or says what is left to do.
begin() {
    if [ "$role" = server ]; then
        todo="say in $config what is trained (docs/install.md)"
    elif [ ! -e "$state/identity.json" ]; then
        todo="run this again with EDGEFLOCK_URL and EDGEFLOCK_TOKEN, as the server printed them"
    elif ! grep -q '^data *=' "$config"; then
        todo="say in $config what it trains on: data = \"csv:/path?label=COLUMN\""
    else
        todo=
    fi
    if ! has_systemd; then
        say "${todo:+$todo; }start it with: $bin/edgeflock $role $config"
    elif [ -n "$todo" ]; then
        say "$todo; then: systemctl enable --now $unit"
    elif systemctl enable --quiet "$unit" && stays_up; then
        say "$unit runs; its log: journalctl -u $unit"
    else
        fail "$unit does not stay up: journalctl -u $unit says why, and edgeflock doctor $config what to do"
    fi
}

# The new version runs, or the old one again.
upgrade() {
    was_active=no
    if has_systemd && [ -e "$units/$unit" ]; then
        ! systemctl is-active --quiet "$unit" || was_active=yes
    fi
    switch_to "$fresh"
    if has_systemd; then
        put_unit "$fresh"
        if [ "$was_active" = yes ] && ! stays_up; then
            say "edgeflock $version does not stay up; going back"
            switch_to "$old"
            put_unit "$old"
            systemctl restart "$unit" || true
            rm -rf "$fresh"
            fail "the version before runs again; journalctl -u $unit says what was wrong with $version"
        fi
    fi
    for other in "$prefix"/versions/*; do
        # What was started by hand may still run of the one before.
        case $other in "$fresh") ;; "$old") [ "$was_active" = no ] || rm -rf "$other" ;; *) rm -rf "$other" ;; esac
    done
    say "upgraded to $version; settings and credentials are as they were"
    [ "$was_active" = yes ] || say "what runs now goes on with the version before until it is started again"
}

set_up() {
    look_at_machine
    if [ -z "$from" ]; then
        from=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." 2>/dev/null && pwd) || from=
        [ -f "$from/pyproject.toml" ] || fail "--from WHAT: name a wheel, a clone or a package index"
    fi
    case $from in
        http://* | https://*) ;;
        *)
            [ -e "$from" ] || fail "--from $from: there is no such file or folder"
            # What pip reads as a path, wherever it is called.
            from=$(CDPATH='' cd -- "$(dirname -- "$from")" && pwd)/$(basename -- "$from") ;;
    esac
    backends="onnx torch"
    [ "$role" = client ] || backends=server
    find_python
    old=
    [ ! -e "$current" ] || old=$(readlink "$current")
    build
    if [ "$as_root" = yes ]; then make_user; fi
    write_settings
    if [ -n "$old" ]; then
        upgrade
        join
        owned
        return
    fi
    switch_to "$fresh"
    join
    owned
    if has_systemd; then put_unit "$fresh"; fi
    begin
}

uninstall() {
    if has_systemd && [ -e "$units/$unit" ]; then
        systemctl disable --now --quiet "$unit" || true
        rm -f "$units/$unit"
        systemctl daemon-reload
    fi
    rm -rf "$prefix/versions" "$prefix/python"
    [ "$(readlink "$bin/edgeflock")" != "$current/bin/edgeflock" ] || rm -f "$bin/edgeflock"
    rm -f "$current"
    if [ "$purge" = yes ]; then
        rm -rf "$state" "$settings/$role.toml"
        rmdir "$settings" 2>/dev/null || true
        if [ "$as_root" = yes ] && [ ! -d "$settings" ]; then userdel edgeflock; fi
    else
        say "left: $settings and $state, with credentials and runs; --uninstall --purge removes them"
    fi
    rmdir "$prefix" "${prefix%/*}" 2>/dev/null || true
    say "removed"
}

main() {
    umask 022
    url=${EDGEFLOCK_URL:-} token=${EDGEFLOCK_TOKEN:-}
    unset EDGEFLOCK_URL EDGEFLOCK_TOKEN
    from='' data='' extras='' role=client service=yes purge=no what=set_up
    while [ $# -gt 0 ]; do
        case $1 in
            --from | --data | --extras)
                [ $# -gt 1 ] || fail "$1 needs a value; --help lists what there is"
                case $1 in
                    --from) from=$2 ;;
                    --data) data=$2 ;;
                    --extras) extras=$2 ;;
                esac
                shift ;;
            --server) role=server ;;
            --no-service) service=no ;;
            --uninstall) what=uninstall ;;
            --purge) purge=yes ;;
            -h | --help) usage; exit ;;
            *) fail "$1 is unknown; --help lists what there is" ;;
        esac
        shift
    done
    [ "$purge$what" != yesset_up ] || fail "--purge needs --uninstall"
    places
    $what
}

main "$@"
