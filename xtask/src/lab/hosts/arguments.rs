//! The arguments of `cargo xtask lab hosts`.

use std::path::PathBuf;

use super::Done;
use super::names::HOSTS;

/// The usage of the command.
pub const USAGE: &str = "\
usage: cargo xtask lab hosts up N              start host-1 to host-N, and write an ssh_config
       cargo xtask lab hosts down              remove all hosts, and their disks
       cargo xtask lab hosts kill K            power off host-K: connections hang
       cargo xtask lab hosts start K           boot it again, with the disk as it was
       cargo xtask lab hosts partition K       cut its network, and leave everything running
       cargo xtask lab hosts heal K            connect it again
       cargo xtask lab hosts refit K MB        boot it with a disk of that size and a clock of its own, for these:
       cargo xtask lab hosts fill K            fill that disk; `empty K` frees it again
       cargo xtask lab hosts freeze K          let writes to that disk wait, until `thaw K`
       cargo xtask lab hosts clock K SECONDS   let `gradus` there see a clock that is ahead; behind, if negative
       cargo xtask lab hosts exec K CMD…       run a program on it without SSH
       cargo xtask lab hosts cloud K,K…        a cloud whose machines are these hosts; `lab cloud` starts both
       … hosts --folder FOLDER …               another lab than `target/lab/hosts`";

/// The folder that is named before the program of `exec`, and the other arguments.
pub fn folder(arguments: &[String]) -> Done<(Option<PathBuf>, Vec<String>)> {
    let Some(at) = arguments.iter().take(3).position(|argument| argument == "--folder") else {
        return Ok((None, arguments.to_vec()));
    };
    let folder = arguments.get(at + 1).filter(|folder| !folder.is_empty()).ok_or(USAGE)?;
    Ok((Some(folder.into()), [&arguments[..at], &arguments[at + 2..]].concat()))
}

/// The number of a host, or of hosts.
pub fn number(text: &str) -> Done<u8> {
    let number = text.parse().ok().filter(|number| HOSTS.contains(number));
    number.ok_or_else(|| {
        let (first, last) = (HOSTS.start(), HOSTS.end());
        let hint = "`up 2` starts two hosts, and `kill 2` powers off the second of them";
        format!("`{text}` is not a number from {first} to {last}\n  hint: {hint}").into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_named_before_a_hosts_own_arguments() {
        let check = |line: &str, named: Option<&str>, rest: &str| {
            let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let (folder, words) = folder(&arguments).unwrap();
            assert_eq!((folder, words.join(" ")), (named.map(PathBuf::from), rest.to_owned()), "{line}");
        };
        check("up 2", None, "up 2");
        check("--folder /a up 2", Some("/a"), "up 2");
        check("up 2 --folder /a", Some("/a"), "up 2");
        check("exec 1 --folder /a ls", Some("/a"), "exec 1 ls");
        check("exec 1 tool --folder /a", None, "exec 1 tool --folder /a");
        assert!(folder(&["--folder".to_owned()]).is_err());
    }

    #[test]
    fn numbers_of_hosts_have_limits() {
        assert_eq!(number("1").unwrap(), 1);
        for wrong in ["0", "101", "-1", "two", ""] {
            let error = number(wrong).unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{wrong}` is not a number from 1 to 100\n  hint: ")), "{error}");
        }
    }
}
