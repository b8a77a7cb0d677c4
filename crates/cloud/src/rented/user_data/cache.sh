
# Disks inside the machine are fast, paid for and empty after each stop: they are striped and hold the cache. Where they cannot
# be had, the cache is on the machine's own disk like everything else.
caches_inside() {
    has_user || return 0
    own=$(getent passwd gradus | cut -d: -f6)/.gradus
    place=$own/homes/$GRADUS_OWNER/cache
    (umask 077 && mkdir -p "$place") || return 0
    chown gradus "$own" "$own/homes" "${place%/cache}" "$place" || return 0
    starts_images_own
    if mountpoint -q "$GRADUS_IMAGES_OWN"; then
        mkdir -p "$GRADUS_IMAGES_OWN/gradus" && mount --bind "$GRADUS_IMAGES_OWN/gradus" "$place"
    else
        set -- $(disks_inside)
        [ $# -gt 0 ] && disk=$(striped "$@") && formats "$disk" && mount "$disk" "$place"
    fi || return 0
    chown gradus "$place"
}

# Amazon's images for deep learning mount these disks themselves.
starts_images_own() {
    systemctl start dlami-nvme >/dev/null 2>&1
}

disks_inside() {
    for disk in "${GRADUS_DISKS:-/dev/disk/by-id}"/nvme-Amazon_EC2_NVMe_Instance_Storage_*; do
        case $disk in *-part* | *'*') continue ;; esac
        readlink -f "$disk"
    done | sort -u
}

# The disk that several are together; the first of them where they cannot be striped.
striped() {
    if [ $# -gt 1 ] && stripes "$@"; then
        echo /dev/md/gradus
    else
        echo "$1"
    fi
}

stripes() {
    mdadm --stop --scan >/dev/null 2>&1
    mdadm --create /dev/md/gradus --run --force --level=0 --raid-devices=$# "$@" >/dev/null 2>&1
}

formats() {
    mkfs.ext4 -q -F -m 0 "$1" >/dev/null 2>&1
}
