
# Disks inside the machine are fast, paid for and empty after each stop: they are striped and hold the cache. Where they cannot
# be had in time, have another use, or hold less than is free without them, the cache is on the machine's own disk like
# everything else. Nobody is let in before, so that nothing is hidden below the mount, and every step has its time.
caches_inside() {
    has_user || return 0
    home=$(getent passwd gradus | cut -d: -f6)
    own=$home/.gradus/homes/$GRADUS_OWNER
    place=$own/cache
    mkdir -p "$place" && chown -h gradus "$home/.gradus" "$home/.gradus/homes" "$own" "$place" || return 0
    starts_images_own || return 0
    if mountpoint -q "$GRADUS_IMAGES_OWN"; then
        holds_more "$(bytes_at size "$GRADUS_IMAGES_OWN")" && mkdir -p "$GRADUS_IMAGES_OWN/gradus" &&
            mount --bind "$GRADUS_IMAGES_OWN/gradus" "$place"
    else
        set -- $(disks_inside)
        [ $# -gt 0 ] && disk=$(striped "$@") && holds_more "$(size_of "$disk")" && formats "$disk" && mount "$disk" "$place"
    fi || return 0
    chown -h gradus "$place"
}

# Amazon's images for deep learning mount these disks themselves. One that has not come to an end may be about to.
starts_images_own() {
    timeout 60 systemctl start dlami-nvme >/dev/null 2>&1
    [ $? != 124 ]
}

disks_inside() {
    for disk in "${GRADUS_DISKS:-/dev/disk/by-id}"/nvme-Amazon_EC2_NVMe_Instance_Storage_*; do
        case $disk in *-part* | *'*') continue ;; esac
        has_no_other_use "$disk" && readlink -f "$disk"
    done | sort -u
}

# Whether it is blank, or what an earlier start has made of it: the user's image may keep something on the others.
has_no_other_use() {
    timeout 60 blkid -p "$1" >/dev/null 2>&1
    case $? in
    0) case $(timeout 60 blkid -p -o value -s LABEL "$1") in gradus-cache | *:gradus | gradus) ;; *) return 1 ;; esac ;;
    2) ;;
    *) return 1 ;;
    esac
}

# The disk that several are together; the first of them where they cannot be striped.
striped() {
    if [ $# -gt 1 ] && stripes "$@"; then
        echo /dev/md/gradus
    else
        echo "$1"
    fi
}

# After a start without a stop before it they are striped already.
stripes() {
    for disk in "$@"; do
        for array in "/sys/class/block/${disk##*/}/holders"/md*; do
            [ ! -e "$array" ] || timeout 60 mdadm --stop "/dev/${array##*/}"
        done
    done >/dev/null 2>&1
    timeout 60 mdadm --create /dev/md/gradus --run --force --level=0 --raid-devices=$# "$@" >/dev/null 2>&1
}

size_of() {
    timeout 60 blockdev --getsize64 "$1"
}

bytes_at() {
    timeout 60 df -B1 --output="$1" "$2" | tail -n 1
}

# Whether so many bytes are more than what is free now.
holds_more() {
    [ "$1" -gt "$(bytes_at avail "$place")" ] 2>/dev/null
}

formats() {
    timeout 120 mkfs.ext4 -q -F -L gradus-cache -m 0 -E nodiscard "$1" >/dev/null 2>&1
}
