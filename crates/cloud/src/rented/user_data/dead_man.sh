#!/bin/sh
# Run as root by a machine that gradus has rented, at each start: at the first as its user data, which puts a copy where
# cloud-init runs it at all later ones. It lets the loop's key in as the user `gradus`, and
# ends the machine once its agent has been silent for too long: powering off ends it, and with it the rent.

has_user() {
    id gradus >/dev/null 2>&1 || useradd --create-home --shell /bin/bash gradus
}

lets_in() {
    has_user
    home=$(getent passwd gradus | cut -d: -f6)
    mkdir -p "$home/.ssh"
    printf '%s\n' "$GRADUS_KEY" >"$home/.ssh/authorized_keys"
    chmod 700 "$home/.ssh"
    chmod 600 "$home/.ssh/authorized_keys"
    chown -R gradus "$home/.ssh"
    may_divide_gpus
}

# Dividing GPUs is root's. The user may do that alone, by a program that takes profiles and nothing else: patterns of sudo would
# let other options of nvidia-smi through, such as the one that writes a file.
may_divide_gpus() {
    rules=${GRADUS_SUDOERS:-/etc/sudoers.d}
    program=${GRADUS_PROGRAMS:-/usr/local/sbin}/gradus-mig
    command -v nvidia-smi >/dev/null && [ -d "$rules" ] && mkdir -p "${program%/*}" || return 0
    divides_gpus >"$program.partial" && chmod 755 "$program.partial" && mv "$program.partial" "$program" || return 0
    echo "gradus ALL=(root) NOPASSWD: $program" >"$rules/gradus.partial" && chmod 440 "$rules/gradus.partial" || return 0
    mv "$rules/gradus.partial" "$rules/gradus"
}

divides_gpus() {
    cat <<'END'
#!/bin/sh
# Divides each GPU by MIG into profiles such as 4g.40gb,3g.40gb, whatever a start before has left of its parts.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL
[ $# = 1 ] || set --
case ,$1 in
*[!0-9a-z.,]* | *,,* | *, | *,[!1-9]*)
    echo 'type profiles of MIG, such as `gradus-mig 4g.40gb,3g.40gb`' >&2
    exit 2
    ;;
esac
gpus=$(nvidia-smi --query-gpu=index --format=csv,noheader) && [ -n "$gpus" ] || exit 1
for gpu in $gpus; do
    nvidia-smi -i "$gpu" -mig 1 || exit 1
    nvidia-smi mig -i "$gpu" -dci || :
    nvidia-smi mig -i "$gpu" -dgi || :
    nvidia-smi mig -i "$gpu" -cgi "$1" -C || exit 1
done
END
}

# An agent writes its meter every second. Only that it changes counts: clocks may be set. Time is the system's own, since
# it was started.
watches() {
    seen=
    since=$(uptime_seconds)
    while :; do
        sleep 30
        now=$(uptime_seconds)
        mark=$(cat "$1"/.gradus/homes/*/instances/*/meter.jsonl 2>/dev/null | cksum)
        if [ "$mark" != "$seen" ] && [ -n "$(ls "$1"/.gradus/homes/*/instances/*/meter.jsonl 2>/dev/null)" ]; then
            seen=$mark
            since=$now
        fi
        if [ $((now - since)) -ge "$GRADUS_SILENCE" ]; then
            ends_machine
        fi
    done
}

uptime_seconds() {
    cut -d. -f1 /proc/uptime
}

# An orderly end may be accepted and never come about.
ends_machine() {
    (sleep 300; poweroff -ff) &
    systemctl poweroff || shutdown -P now || poweroff -f
    wait
}

# A kernel that has broken starts again, and the switch with it.
outlives_starts() {
    sysctl -w kernel.panic=30 >/dev/null 2>&1
    [ "$1" = "$GRADUS_STARTS/gradus" ] && return
    mkdir -p "$GRADUS_STARTS"
    cp "$1" "$GRADUS_STARTS/gradus.partial"
    chmod 755 "$GRADUS_STARTS/gradus.partial"
    mv "$GRADUS_STARTS/gradus.partial" "$GRADUS_STARTS/gradus"
}
