
# An image of Ubuntu for everybody has no driver of NVIDIA. Nobody is let in before it is installed, because GPUs are looked
# for once. A driver that cannot be installed is no reason to shut the loop out.
installs_driver() {
    nvidia_smi && return
    packages=$(driver_packages)
    [ -n "$packages" ] || return 0
    updates_lists && apt_get install "linux-headers-$(uname -r)" $packages && modprobe nvidia || return
    case $packages in
    # Its package starts it before there is a driver, and it fails.
    *fabricmanager*) systemctl enable nvidia-fabricmanager && systemctl restart nvidia-fabricmanager ;;
    esac
}

# Nothing waits for the lock of the lists, unlike that of packages.
updates_lists() {
    tries=0
    until apt_get update; do
        tries=$((tries + 1))
        [ "$tries" -lt 20 ] || return
        sleep 15
    done
}

# Nothing without a GPU. GPUs behind NVSwitch do not compute before the fabric manager has set it up.
driver_packages() {
    gpu= switch=
    for device in "${GRADUS_PCI:-/sys/bus/pci/devices}"/*; do
        [ "$(cat "$device/vendor" 2>/dev/null)" = 0x10de ] || continue
        case $(cat "$device/class") in
        0x03*) gpu="nvidia-headless-$GRADUS_DRIVER nvidia-utils-$GRADUS_DRIVER" ;;
        0x0680*) switch="nvidia-fabricmanager-${GRADUS_DRIVER%-server}" ;;
        esac
    done
    [ -z "$gpu" ] || echo "$gpu $switch"
}

nvidia_smi() {
    nvidia-smi >/dev/null 2>&1
}

# Updates that the system makes by itself at its first start hold the lock.
apt_get() {
    DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=600 "$@" >>/var/log/gradus-driver.log 2>&1
}
