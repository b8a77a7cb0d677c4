//! The start-up script of a rented machine: it lets the loop in, and arms the dead-man switch.
//!
//! The switch is the only defence when the loop never returns: the machine powers itself off, and its settings
//! (`InstanceInitiatedShutdownBehavior`) make that the end of the rent. It is armed first, so that it also works if no
//! agent ever starts.

use domain::Duration;

/// For so long the agent may be silent before its machine ends itself.
pub const SILENCE: Duration = Duration::from_secs(1800);

const SCRIPT: &str = include_str!("dead_man.sh");

/// The program that divides the GPUs of a machine by MIG, all that its user may do as root; it takes the profiles of each.
pub const MIG_PROGRAM: &str = "/usr/local/sbin/gradus-mig";

/// Functions that put the cache on disks inside the machine.
const CACHE_SCRIPT: &str = include_str!("cache.sh");

/// Where Amazon's images for deep learning mount such disks.
const IMAGES_OWN: &str = "/opt/dlami/nvme";

/// Functions that install NVIDIA's driver.
const DRIVER_SCRIPT: &str = include_str!("driver.sh");

/// The newest branch of NVIDIA's driver for servers that also runs P4, P100 and V100.
const DRIVER: &str = "580-server";

/// The script for a machine that this public key may enter.
pub fn user_data(public_key: &str) -> String {
    script(public_key, ("", ""))
}

/// The same for a machine of AWS, which may have disks inside: they hold the cache of this owner before anybody is let in.
pub fn user_data_with_cache(public_key: &str, owner: &str) -> String {
    let owner = crate::ssh::folder_of(owner);
    let call = format!("GRADUS_OWNER='{owner}'\nGRADUS_IMAGES_OWN={IMAGES_OWN}\ncaches_inside\n");
    script(public_key, (CACHE_SCRIPT, &call))
}

/// The same for an image of Ubuntu that may have no driver: it is installed before anybody is let in.
pub fn user_data_with_driver(public_key: &str) -> String {
    let call = format!("GRADUS_DRIVER={DRIVER}\ninstalls_driver\n");
    script(public_key, (&format!("\n{DRIVER_SCRIPT}"), &call))
}

fn script(public_key: &str, (functions, before): (&str, &str)) -> String {
    let key: String = public_key.trim().chars().filter(|letter| *letter != '\'').collect();
    let seconds = SILENCE.micros() / 1_000_000;
    // In the background, so that it outlives the start-up script.
    format!(
        "{SCRIPT}{functions}\nGRADUS_SILENCE={seconds}\nGRADUS_KEY='{key}'\n\
         GRADUS_STARTS=/var/lib/cloud/scripts/per-boot\n\
         (trap '' HUP TERM; watches /home/gradus) </dev/null >/dev/null 2>&1 &\noutlives_starts \"$0\"\n{before}lets_in\n"
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::process::Command;

    use super::*;

    /// Runs the switch with a simulated clock: each sleep passes half a minute at once, and `script` decides when the
    /// agent writes. Prints when the machine ends.
    fn ends_at(agent_writes: &str) -> u64 {
        let folder = tempfile::tempdir().unwrap();
        let meter = folder.path().join(".gradus/homes/me/instances/i");
        std::fs::create_dir_all(&meter).unwrap();
        let clock = format!(
            "clock=1000\nuptime_seconds() {{ echo $clock; }}\nends_machine() {{ echo $clock; exit 0; }}\n\
             sleep() {{ clock=$((clock + $1)); at=$((clock - 1000)); {agent_writes}; [ $clock -lt 20000 ]; }}\n"
        );
        // The script's own functions are replaced by those that come later.
        let script = format!(
            "{SCRIPT}\n{clock}\nMETER='{}/meter.jsonl'\nGRADUS_SILENCE=1800\nwatches '{}'\n",
            meter.display(),
            folder.path().display()
        );
        let output = Command::new("sh").arg("-c").arg(script).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().parse::<u64>().unwrap() - 1000
    }

    #[test]
    fn a_machine_ends_itself_half_an_hour_after_its_agent_was_heard_last() {
        assert_eq!(ends_at(":"), 1800, "no agent ever came up");
        assert_eq!(ends_at("[ $at -le 600 ] && echo $at > $METER"), 2400, "it was silent after ten minutes");
        assert_eq!(ends_at("[ $at = 30 ] && : > $METER"), 1830, "it came up and wrote nothing more");
        let busy = ends_at("[ $at -le 8000 ] && echo $at > $METER");
        assert_eq!(busy, 8_010 + 1800 - 30, "one that works is left alone");
    }

    /// Runs some of the script, without programs that could end this machine; returns its output lines.
    fn run(script: &str, path: &str) -> Vec<String> {
        let output =
            Command::new("/bin/sh").env("PATH", path).arg("-c").arg(format!("{SCRIPT}\n{script}")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut lines: Vec<String> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }

    #[test]
    fn one_program_that_divides_gpus_is_all_that_is_allowed_as_root() {
        let folder = tempfile::tempdir().unwrap();
        let (place, rules) = (folder.path().display(), folder.path().join("gradus"));
        let allow = |programs: &str| {
            let places = format!("GRADUS_SUDOERS='{place}'\nGRADUS_PROGRAMS='{place}/sbin'");
            run(&format!("{programs}\n{places}\nmay_divide_gpus"), "/usr/bin:/bin");
            std::fs::read_to_string(&rules).unwrap_or_default()
        };
        // A function that hides a program, and one that is found.
        assert_eq!(allow("command() { false; }"), "", "there is no GPU of NVIDIA");
        let rule = allow("command() { :; }");
        assert_eq!(rule, format!("gradus ALL=(root) NOPASSWD: {place}/sbin/gradus-mig\n"));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&rules), mode(&folder.path().join("sbin/gradus-mig"))), (0o440, 0o755));
        let (programs, name) = MIG_PROGRAM.rsplit_once('/').unwrap();
        assert!(SCRIPT.contains(&format!("program=${{GRADUS_PROGRAMS:-{programs}}}/{name}\n")));
    }

    /// What the program that divides GPUs does on a machine of two, where `fails` fails; and its code.
    fn divided(arguments: &[&str], fails: &str) -> (Option<i32>, String) {
        let folder = tempfile::tempdir().unwrap();
        let (said, stand_in) = (folder.path().join("said"), folder.path().join("nvidia-smi"));
        let lists = "case $1 in --query*) echo 0; echo 1; exit ;; esac";
        let notes = format!("echo \"$@\" >>'{}'; case \"$*\" in *{fails}*) exit 1 ;; esac", said.display());
        std::fs::write(&stand_in, format!("#!/bin/sh\n{lists}\n{notes}\n")).unwrap();
        std::fs::set_permissions(&stand_in, std::fs::Permissions::from_mode(0o755)).unwrap();
        let printed = Command::new("sh").arg("-c").arg(format!("{SCRIPT}\ndivides_gpus")).output().unwrap();
        let program = String::from_utf8(printed.stdout).unwrap();
        let program = program.replace("\nPATH=", &format!("\nPATH={}:", folder.path().display()));
        let status = Command::new("sh").args(["-c", &program, "gradus-mig"]).args(arguments).status().unwrap();
        (status.code(), std::fs::read_to_string(said).unwrap_or_default().trim_end().replace('\n', "; "))
    }

    #[test]
    fn each_gpu_is_divided_and_a_layout_that_cannot_be_made_is_the_end() {
        let one = |gpu: u32| {
            format!("-i {gpu} -mig 1; mig -i {gpu} -dci; mig -i {gpu} -dgi; mig -i {gpu} -cgi 4g.40gb,3g.40gb -C")
        };
        let both = format!("{}; {}", one(0), one(1));
        assert_eq!(divided(&["4g.40gb,3g.40gb"], "nothing"), (Some(0), both.clone()));
        assert_eq!(divided(&["4g.40gb,3g.40gb"], "-dci"), (Some(0), both), "there were no parts to take away");
        assert_eq!(divided(&["4g.40gb,3g.40gb"], "-cgi"), (Some(1), one(0)));
    }

    #[test]
    fn whoever_divides_gpus_can_do_nothing_else_as_root() {
        let refused: [&[&str]; 9] = [
            &[],
            &[""],
            &["1g.10gb", "1g.10gb"],
            &["-f"],
            &["1g.10gb,-f"],
            &["1g.10gb,"],
            &["1g.10gb -f /etc/passwd"],
            &["1g.10gb\n-f"],
            &["$(id)"],
        ];
        for arguments in refused {
            assert_eq!(divided(arguments, "nothing"), (Some(2), String::new()), "{arguments:?}");
        }
    }

    #[test]
    fn an_end_that_does_not_come_about_is_forced() {
        let named = |name: &str| format!("{name}() {{ echo {name} \"$@\"; }}\n");
        let programs: String = ["sleep", "systemctl", "shutdown", "poweroff"].map(named).concat();
        let said = run(&format!("{programs}ends_machine"), "/nonexistent");
        assert_eq!(said, ["poweroff -ff", "sleep 300", "systemctl poweroff"]);
    }

    #[test]
    fn the_switch_is_armed_again_at_each_start() {
        let folder = tempfile::tempdir().unwrap();
        let (starts, first) = (folder.path().join("per-boot"), folder.path().join("part-001"));
        std::fs::write(&first, "#!/bin/sh\necho armed\n").unwrap();
        let install = |from: &std::path::Path| {
            let (starts, from) = (starts.display(), from.display());
            let script = format!("sysctl() {{ echo sysctl \"$@\" >&2; }}\nGRADUS_STARTS={starts}\n");
            run(&format!("{script}outlives_starts {from} || exit 1"), "/usr/bin:/bin")
        };
        install(&first);
        let installed = starts.join("gradus");
        assert_eq!(Command::new(&installed).output().unwrap().stdout, b"armed\n", "it can be run");
        install(&installed);
        assert_eq!(std::fs::read(&installed).unwrap(), std::fs::read(&first).unwrap());
        let text = user_data("key");
        let (armed, kept) = (text.find("watches /home/gradus)"), text.find("\noutlives_starts \"$0\"\n"));
        assert!(armed.is_some() && armed < kept, "armed before anything else, and kept: {text}");
        assert!(text.contains("\nGRADUS_STARTS=/var/lib/cloud/scripts/per-boot\n"), "{text}");
    }

    /// What is called by a machine with PCI devices of these vendors and classes, in order.
    fn called(devices: &[(&str, &str)], nvidia_smi: &str, apt_get: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        for (number, (vendor, class)) in devices.iter().enumerate() {
            let device = folder.path().join(format!("0000:00:{number:02}.0"));
            std::fs::create_dir_all(&device).unwrap();
            std::fs::write(device.join("vendor"), format!("{vendor}\n")).unwrap();
            std::fs::write(device.join("class"), format!("{class}\n")).unwrap();
        }
        let script = format!(
            "{DRIVER_SCRIPT}\nGRADUS_PCI={}\nGRADUS_DRIVER={DRIVER}\nuname() {{ echo 5.15; }}\n\
             {nvidia_smi}\napt_get() {{ echo \"$@\"; {apt_get}; }}\nmodprobe() {{ echo modprobe \"$@\"; }}\n\
             systemctl() {{ echo systemctl \"$@\"; }}\nsleep() {{ :; }}\ninstalls_driver; echo lets_in",
            folder.path().display()
        );
        let output = Command::new("sh").arg("-c").arg(script).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_driver_is_installed_where_there_is_a_gpu_without_one() {
        let (none, other, gpu) = ("nvidia_smi() { false; }", ("0x1af4", "0x068000"), ("0x10de", "0x030200"));
        let installs = "install linux-headers-5.15 nvidia-headless-580-server nvidia-utils-580-server";
        assert_eq!(called(&[other, gpu], none, ":"), ["update", installs, "modprobe nvidia", "lets_in"]);
        let switched = format!("{installs} nvidia-fabricmanager-580");
        let all = [gpu, gpu, ("0x10de", "0x068000")];
        let (enabled, started) = ("systemctl enable nvidia-fabricmanager", "systemctl restart nvidia-fabricmanager");
        let expected = ["update", switched.as_str(), "modprobe nvidia", enabled, started, "lets_in"];
        assert_eq!(called(&all, none, ":"), expected);
        assert_eq!(called(&[gpu], "nvidia_smi() { :; }", ":"), ["lets_in"], "it is there already");
        assert_eq!(called(&[other], none, ":"), ["lets_in"], "there is no GPU of NVIDIA");
        let held = "[ $1 = install ] || [ $tries -ge 2 ]";
        let waits = ["update", "update", "update", installs, "modprobe nvidia", "lets_in"];
        assert_eq!(called(&[gpu], none, held), waits, "updates at the first start hold the lock of the lists");
        let (failed, why) = (called(&[gpu], none, "false"), "who wonders why must get in");
        assert_eq!((failed.len(), failed.last().map(String::as_str)), (21, Some("lets_in")), "{why}");
    }

    /// What is done with these disks inside a machine, after these lines have changed it: its image may have mounted them
    /// itself.
    fn cached(disks: &[&str], changes: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        for (number, disk) in disks.iter().enumerate() {
            let target = folder.path().join(disk);
            std::fs::write(&target, "").unwrap();
            // A disk has several names, and a name for each of its parts.
            for name in [format!("{number}"), format!("{number}-ns-1"), format!("{number}-part1")] {
                let link = folder.path().join(format!("nvme-Amazon_EC2_NVMe_Instance_Storage_{name}"));
                std::os::unix::fs::symlink(&target, link).unwrap();
            }
        }
        let (place, own) = (folder.path().display(), folder.path().join("own"));
        let script = format!(
            "{CACHE_SCRIPT}\nGRADUS_DISKS='{place}'\nGRADUS_OWNER=me\nGRADUS_IMAGES_OWN='{}'\nhas_user() {{ :; }}\n\
             getent() {{ echo gradus:x:1000:1000::{place}/home:/bin/sh; }}\nchown() {{ :; }}\nsystemctl() {{ :; }}\n\
             timeout() {{ shift; \"$@\"; }}\nmountpoint() {{ false; }}\nblkid() {{ return 2; }}\n\
             size_of() {{ echo 20; }}\nbytes_at() {{ case $1 in size) echo 20 ;; *) echo 10 ;; esac; }}\n\
             mount() {{ echo mount \"$@\"; }}\nformats() {{ echo formats \"$1\"; }}\n\
             stripes() {{ echo stripes \"$@\" >&2; }}\n{changes}\ncaches_inside && echo lets_in",
            own.display()
        );
        let output = Command::new("sh").arg("-c").arg(script).output().unwrap();
        assert!(folder.path().join("home/.gradus/homes/me/cache").is_dir());
        let said = [output.stderr, output.stdout].concat();
        let said = String::from_utf8(said).unwrap().replace(&format!("{place}/"), "");
        said.trim_end().replace('\n', ", ")
    }

    fn check_cached(disks: &[&str], changes: &str, expected: &str) {
        let expected = expected.replace("CACHE", "home/.gradus/homes/me/cache");
        assert_eq!(cached(disks, changes), expected, "{disks:?} {changes}");
    }

    #[test]
    fn disks_inside_a_machine_are_striped_and_hold_its_cache() {
        check_cached(&[], "", "lets_in");
        check_cached(&["a"], "", "formats a, mount a CACHE, lets_in");
        let both = "stripes a b, formats /dev/md/gradus, mount /dev/md/gradus CACHE, lets_in";
        check_cached(&["a", "b"], "", both);
        let failing = "stripes() { echo stripes \"$@\" >&2; false; }";
        check_cached(&["a", "b"], failing, "stripes a b, formats a, mount a CACHE, lets_in");
        check_cached(&["a"], "mountpoint() { :; }", "mount --bind own/gradus CACHE, lets_in");
    }

    #[test]
    fn disks_inside_a_machine_that_cannot_hold_its_cache_keep_nobody_out() {
        let failures = [
            "mkdir() { command mkdir \"$@\"; false; }",
            "chown() { false; }",
            // What the image does with them has not come to an end.
            "systemctl() { return 124; }",
            // They hold less than there is without them, or nobody knows.
            "size_of() { echo 10; }",
            "size_of() { :; }",
            "bytes_at() { :; }",
            "bytes_at() { echo 10; }\nmountpoint() { :; }",
            // Another file system, and one that cannot be told.
            "blkid() { [ $# = 2 ] || echo scratch; }",
            "blkid() { return 8; }",
            "formats() { false; }",
            "mount() { false; }",
        ];
        for failure in failures {
            let failure = format!("formats() {{ :; }}\n{failure}");
            check_cached(&["a"], &failure, "lets_in");
        }
    }

    #[test]
    fn what_an_earlier_start_has_made_of_disks_is_made_again() {
        for label in ["gradus-cache", "gradus", "ip-10-0-0-7:gradus"] {
            let changes = format!("blkid() {{ [ $# = 2 ] || echo {label}; }}");
            check_cached(&["a"], &changes, "formats a, mount a CACHE, lets_in");
        }
    }

    #[test]
    fn the_cache_has_its_place_before_anybody_is_let_in() {
        let text = user_data_with_cache("key", "owner-of-tests");
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} in {text}"));
        assert!(at("watches /home/gradus)") < at("\ncaches_inside\n"), "{text}");
        assert!(at("\ncaches_inside\n") < at("\nlets_in\n") && text.contains("\nGRADUS_OWNER='"), "{text}");
        let status = Command::new("sh").args(["-n", "-c", &text]).status().unwrap();
        assert!(status.success() && text.len() < 8 << 10, "{} bytes", text.len());
    }

    #[test]
    fn the_driver_comes_after_the_switch_and_before_the_loop() {
        let text = user_data_with_driver("key");
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} in {text}"));
        assert!(at("watches /home/gradus)") < at("\ninstalls_driver\n"), "{text}");
        assert!(at("\ninstalls_driver\n") < at("\nlets_in\n"), "{text}");
        assert!(!user_data("key").contains("driver"));
        let status = Command::new("sh").args(["-n", "-c", &text]).status().unwrap();
        // Tencent takes 16 KiB of Base64.
        assert!(status.success() && text.len() < 8 << 10, "{} bytes", text.len());
    }

    #[test]
    fn the_script_is_one_that_a_shell_reads() {
        let text = user_data("ssh-ed25519 AAAA it's me\n");
        assert!(text.starts_with("#!/bin/sh\n") && text.contains("GRADUS_KEY='ssh-ed25519 AAAA its me'\n"), "{text}");
        let status = Command::new("sh").args(["-n", "-c", &text]).status().unwrap();
        assert!(status.success());
        // EC2 takes 16 KiB.
        assert!(text.len() < 8 << 10, "{} bytes", text.len());
    }
}
