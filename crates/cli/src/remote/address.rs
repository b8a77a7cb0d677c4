//! The address of a server, as it is typed.

use crate::error::Error;

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Without a slash at its end.
    pub url: String,
    /// Whether it is this machine.
    pub is_near: bool,
}

impl Address {
    /// Reads an address. A token travels to this machine without TLS, and to no other.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn parse(text: &str) -> Result<Address, Error> {
        let wrong = |why: &str, hint: String| {
            let message = format!("`{text}` is no address of a server: {why}");
            Err(Error::Usage { message, hint })
        };
        let Some((scheme, rest)) = text.trim().split_once("://") else {
            let bare = text.trim().trim_end_matches('/');
            let hint = format!("write `http://{bare}`, or `https://{bare}` for a server with TLS");
            return wrong("it does not begin with `http://` or `https://`", hint);
        };
        let example = || "write it as `gradus serve` prints it, such as `http://127.0.0.1:7070`".to_owned();
        if !matches!(scheme, "http" | "https") {
            return wrong("it does not begin with `http://` or `https://`", example());
        }
        let rest = rest.trim_end_matches('/');
        let is_plain = |c: char| c.is_ascii_alphanumeric() || ".:-_[]".contains(c);
        if rest.is_empty() || !rest.chars().all(is_plain) {
            return wrong("after `://` stands a name or number and a port, and nothing else", example());
        }
        let is_near = is_near(rest);
        if scheme == "http" && !is_near {
            let hint = "use `https://`, or an `ssh -L` tunnel and `http://127.0.0.1:PORT`".to_owned();
            return wrong("without TLS the token could be read on its way to another machine", hint);
        }
        Ok(Address { url: format!("{scheme}://{rest}"), is_near })
    }
}

/// Whether a name and port are of this machine.
fn is_near(authority: &str) -> bool {
    if let Some(rest) = authority.strip_prefix('[') {
        return rest.split(']').next() == Some("::1");
    }
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    host == "localhost" || host.parse::<std::net::Ipv4Addr>().is_ok_and(|host| host.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_or_refused_with_what_to_write() {
        let check = |text: &str, near: bool| assert_eq!(Address::parse(text).unwrap().is_near, near, "{text}");
        check("http://127.0.0.1:7070", true);
        check("http://localhost:7070/", true);
        check("http://[::1]:7070", true);
        check("https://gpu.example.com", false);
        assert_eq!(Address::parse("http://127.0.0.1:1//").unwrap().url, "http://127.0.0.1:1");
        let check = |text: &str, part: &str| {
            let error = Address::parse(text).unwrap_err();
            let said = format!("{error} {}", error.hint().unwrap());
            assert!(said.contains(part), "{said}");
        };
        check("127.0.0.1:7070", "write `http://127.0.0.1:7070`");
        check("ftp://127.0.0.1", "does not begin with `http://`");
        check("http://", "a name or number and a port");
        check("http://me:secret@127.0.0.1", "a name or number and a port");
        check("http://127.0.0.1:1/v1/runs", "a name or number and a port");
        check("http://127.0.0.1.example.com", "use `https://`");
        check("http://10.0.0.1:7070", "use `https://`");
    }
}
