//! The start-up script of a rented machine: it lets the loop in, and arms the dead-man switch.
//!
//! The switch is the only defence when the loop never returns: the machine powers itself off, and its settings
//! (`InstanceInitiatedShutdownBehavior`) make that the end of the rent. It is armed first, so that it also works if no
//! agent ever starts.

use domain::Duration;

/// For so long the agent may be silent before its machine ends itself.
pub const SILENCE: Duration = Duration::from_secs(1800);

const SCRIPT: &str = include_str!("dead_man.sh");

/// The script for a machine that this public key may enter.
pub fn user_data(public_key: &str) -> String {
    let key: String = public_key.trim().chars().filter(|letter| *letter != '\'').collect();
    let seconds = SILENCE.micros() / 1_000_000;
    // In the background, so that it outlives the start-up script.
    format!(
        "{SCRIPT}\nGRADUS_SILENCE={seconds}\nGRADUS_KEY='{key}'\nGRADUS_STARTS=/var/lib/cloud/scripts/per-boot\n\
         (trap '' HUP TERM; watches /home/gradus) </dev/null >/dev/null 2>&1 &\noutlives_starts \"$0\"\nlets_in\n"
    )
}

#[cfg(test)]
mod tests {
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
