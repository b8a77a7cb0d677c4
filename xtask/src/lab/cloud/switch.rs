//! The dead-man switch of a machine, on its host: the functions of the user data that was sent, with the host's own files and a
//! shorter time. What would power this machine off says so in a file instead.

use std::time::Duration;

/// The file by which the switch ends its host, on the host's disk.
pub const ENDED: &str = "ended";

/// The script, from user data as it stands in a form: base64, percent-encoded. None where it has no switch.
pub fn script(user_data: &str, silence: Duration, disk: &str) -> Option<String> {
    let text =
        String::from_utf8(base64(&user_data.replace("%2B", "+").replace("%2F", "/").replace("%3D", "="))?).ok()?;
    // From here on it acts: it makes a user, and files of the system that hosts share.
    let (functions, _) = text.split_once("\nGRADUS_SILENCE=")?;
    functions.contains("watches()").then_some(())?;
    let seconds = silence.as_secs();
    Some(format!(
        "{functions}\nGRADUS_SILENCE={seconds}\nsleep() {{ command sleep 1; }}\n\
         ends_machine() {{ : >{disk}/{ENDED}; exit 0; }}\nwatches /root\n"
    ))
}

fn base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut word, mut bits) = (0_u32, 0);
    for letter in text.trim_end_matches('=').bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        (word, bits) = (word << 6 | u32::from(value), bits + 6);
        if bits >= 8 {
            bits -= 8;
            bytes.push((word >> bits & 0xff) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read() {
        // From RFC 4648.
        for (text, expected) in [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYmFy", "foobar")] {
            assert_eq!(base64(text).unwrap(), expected.as_bytes());
        }
        assert_eq!(base64("Zm9v!"), None);
    }

    #[test]
    fn only_the_functions_of_user_data_run_and_nothing_of_the_system_is_touched() {
        // "#!/bin/sh\nwatches() {\n}\nGRADUS_SILENCE=1800\nlets_in\n"
        let data = "IyEvYmluL3NoCndhdGNoZXMoKSB7Cn0KR1JBRFVTX1NJTEVOQ0U9MTgwMApsZXRzX2luCg%3D%3D";
        let text = script(data, Duration::from_secs(40), "/run/host").unwrap();
        assert!(text.starts_with("#!/bin/sh\nwatches() {\n}\nGRADUS_SILENCE=40\n"), "{text}");
        assert!(!text.contains("lets_in") && text.contains(": >/run/host/ended") && text.ends_with("watches /root\n"));
        assert_eq!(script("IyEvYmluL3NoCg%3D%3D", Duration::from_secs(40), "/run/host"), None);
    }
}
