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

# Dividing GPUs is root's; of all that is, this alone is allowed.
may_divide_gpus() {
    smi=$(command -v nvidia-smi) || return 0
    rules=${GRADUS_SUDOERS:-/etc/sudoers.d}
    [ -d "$rules" ] || return 0
    for words in '-i [0-9]* -mig [01]' 'mig -i [0-9]* -dci' 'mig -i [0-9]* -dgi' 'mig -i [0-9]* -cgi [0-9]* -C'; do
        echo "gradus ALL=(root) NOPASSWD: $smi $words"
    done >"$rules/gradus.partial"
    chmod 440 "$rules/gradus.partial"
    mv "$rules/gradus.partial" "$rules/gradus"
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
