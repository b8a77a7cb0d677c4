//! The hash by which a file that travels between machines is recognised.

use std::io::{self, Read};

use sha2::{Digest, Sha256};

/// Bytes that are read at a time.
const BUFFER: usize = 1 << 20;

/// Reads everything to its end and returns its SHA-256 in hexadecimal digits.
///
/// # Errors
/// When it cannot be read.
pub fn sha256(mut contents: impl Read) -> io::Result<String> {
    let (mut hash, mut buffer) = (RunningHash::default(), vec![0; BUFFER]);
    loop {
        match contents.read(&mut buffer)? {
            0 => return Ok(hash.digits()),
            read => hash.add(&buffer[..read]),
        }
    }
}

/// The SHA-256 of bytes that come in parts.
#[derive(Debug, Clone, Default)]
pub struct RunningHash(Sha256);

impl RunningHash {
    /// Adds the next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Of all bytes so far, in hexadecimal digits.
    pub fn digits(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a few bytes at a time, as a pipe may.
    struct Dripping<'a>(&'a [u8]);

    impl Read for Dripping<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = self.0.len().min(3);
            (&self.0[..length]).read_exact(&mut buffer[..length])?;
            self.0 = &self.0[length..];
            Ok(length)
        }
    }

    #[test]
    fn the_hash_is_that_of_fips_180_2_however_the_bytes_come() {
        let check = |text: &str, expected: &str| {
            assert_eq!(sha256(text.as_bytes()).unwrap(), expected);
            assert_eq!(sha256(Dripping(text.as_bytes())).unwrap(), expected);
        };
        check("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        check("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        check(
            "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
        );
    }
}
