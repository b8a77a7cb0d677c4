//! One NumPy array: a text header followed by the values.
//!
//! The format is <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>. The header is a dictionary
//! of three keys, parsed here because the published readers depend on a parser of all Python literals, which takes
//! longer to build than the other formats of this crate.

use crate::formats::class_names::Named;

const MAGIC: &[u8] = b"\x93NUMPY";

/// An array of which only the header was read.
#[derive(Debug)]
pub(super) struct Array<'a> {
    /// The type of its values, such as `|u1`.
    pub kind: &'a str,
    pub shape: Vec<usize>,
    pub values: &'a [u8],
}

impl<'a> Array<'a> {
    /// Reads the header of a `.npy` file.
    ///
    /// # Errors
    /// A message that says why it is not supported.
    pub fn of(bytes: &'a [u8]) -> Result<Array<'a>, String> {
        let damaged = || "it is damaged".to_owned();
        let rest = bytes.strip_prefix(MAGIC).ok_or("it is no NumPy array")?;
        let ([major, _], rest) = rest.split_first_chunk().ok_or_else(damaged)?;
        let (length, rest) = match major {
            1 => rest.split_first_chunk().map(|(length, rest)| (usize::from(u16::from_le_bytes(*length)), rest)),
            _ => rest.split_first_chunk().map(|(length, rest)| (u32::from_le_bytes(*length) as usize, rest)),
        }
        .ok_or_else(damaged)?;
        let (header, values) = rest.split_at_checked(length).ok_or_else(damaged)?;
        let header = std::str::from_utf8(header).map_err(|_| damaged())?;
        let after = |key: &str| {
            let at = header.find(&format!("'{key}':"))?;
            Some(header[at + key.len() + 3..].trim_start())
        };
        let kind = after("descr").and_then(|text| text.strip_prefix('\'')?.split('\'').next());
        let kind = kind.ok_or("it holds records or objects")?;
        if after("fortran_order").ok_or_else(damaged)?.starts_with("True") {
            return Err("its values are in column-major order; convert them with `numpy.ascontiguousarray`".to_owned());
        }
        let shape = after("shape").and_then(|text| text.strip_prefix('(')?.split(')').next()).ok_or_else(damaged)?;
        let lengths = shape.split(',').map(str::trim).filter(|length| !length.is_empty());
        let shape: Vec<usize> =
            lengths.map(|length| length.parse().map_err(|_| damaged())).collect::<Result<_, _>>()?;
        let array = Array { kind, shape, values };
        let expected = array.shape.iter().try_fold(array.width()?, |all, length| all.checked_mul(*length));
        match expected == Some(values.len()) {
            true => Ok(array),
            false => Err("the number of its values differs from its header".to_owned()),
        }
    }

    /// Bytes of one value.
    fn width(&self) -> Result<usize, String> {
        let unknown = || format!("its values are of the type `{}`", self.kind);
        let number: usize = self.kind.get(2..).and_then(|digits| digits.parse().ok()).ok_or_else(unknown)?;
        match self.kind.as_bytes()[1] {
            b'U' => number.checked_mul(4).ok_or_else(unknown),
            b'b' | b'i' | b'u' | b'f' | b'S' if number > 0 => Ok(number),
            _ => Err(unknown()),
        }
    }

    /// The classes that the values name: integers, or strings.
    ///
    /// # Errors
    /// A message that says why they are not classes.
    pub fn classes(&self) -> Result<Vec<Named>, String> {
        let width = self.width()?;
        let is_big = self.kind.starts_with('>');
        let number = |bytes: &[u8], is_signed: bool| {
            let fold = |value: i64, byte: &u8| value << 8 | i64::from(*byte);
            let most = if is_big { bytes.first() } else { bytes.last() };
            let start = if is_signed && most.is_some_and(|byte| byte & 0x80 != 0) { -1 } else { 0 };
            if is_big { bytes.iter().fold(start, fold) } else { bytes.iter().rev().fold(start, fold) }
        };
        let name = |text: String| {
            let text = text.trim_end_matches('\0');
            Named::parse(text).ok_or_else(|| "one of its labels is empty".to_owned())
        };
        let character =
            |bytes: &[u8]| char::from_u32(number(bytes, false) as u32).unwrap_or(char::REPLACEMENT_CHARACTER);
        if width == 0 {
            return Err("its labels are empty".to_owned());
        }
        let values = self.values.chunks_exact(width);
        match self.kind.as_bytes()[1] {
            b'u' | b'b' if width <= 8 => Ok(values.map(|bytes| Named::Number(number(bytes, false))).collect()),
            b'i' if width <= 8 => Ok(values.map(|bytes| Named::Number(number(bytes, true))).collect()),
            b'U' => values.map(|bytes| name(bytes.chunks_exact(4).map(character).collect())).collect(),
            b'S' => values.map(|bytes| name(String::from_utf8_lossy(bytes).into_owned())).collect(),
            _ => Err(format!("its values are of the type `{}`, but classes must be integers or strings", self.kind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(kind: &str, order: &str, shape: &str, values: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, }}\n");
        [MAGIC, &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes(), values].concat()
    }

    #[test]
    fn classes_are_integers_and_strings() {
        let check = |kind: &str, values: &[u8], expected: &[Named]| {
            let bytes = written(&format!("'{kind}'"), "False", &format!("({},)", expected.len()), values);
            assert_eq!(Array::of(&bytes).unwrap().classes().unwrap(), expected, "{kind}");
        };
        let name = |text: &str| Named::Word(text.to_owned());
        check("|u1", &[0, 200], &[Named::Number(0), Named::Number(200)]);
        check("|i1", &[0, 255], &[Named::Number(0), Named::Number(-1)]);
        check("<i8", &(-3_i64).to_le_bytes(), &[Named::Number(-3)]);
        check(">i4", &7_i32.to_be_bytes(), &[Named::Number(7)]);
        check("<u2", &[1, 2], &[Named::Number(513)]);
        check(
            "|S3",
            b"cat\0\0\0emu"[..3].iter().chain(b"do\0").copied().collect::<Vec<_>>().as_slice(),
            &[name("cat"), name("do")],
        );
        check("<U2", &[b'a', 0, 0, 0, 0xE9, 0, 0, 0], &[name("aé")]);
    }

    #[test]
    fn unsupported_files_are_refused_with_a_reason() {
        let check = |bytes: &[u8], expected: &str| {
            let found = Array::of(bytes).and_then(|array| array.classes()).unwrap_err();
            assert!(found.contains(expected), "{found}");
        };
        check(b"PK", "no NumPy array");
        check(&written("'|u1'", "False", "(3,)", &[1, 2])[..20], "is damaged");
        check(&written("'|u1'", "False", "(3,)", &[1, 2]), "number of its values");
        check(&written("'|u1'", "False", "(99999999999, 99999999999)", &[1, 2]), "number of its values");
        check(&written("'|u1'", "True", "(2,)", &[1, 2]), "numpy.ascontiguousarray");
        check(&written("[('a', '<i4')]", "False", "(1,)", &[0; 4]), "records or objects");
        check(&written("'|O'", "False", "(1,)", &[0; 4]), "of the type `|O`");
        check(&written("'<f4'", "False", "(1,)", &[0; 4]), "classes must be integers or strings");
        check(&written("'<U0'", "False", "(0,)", &[]), "are empty");
    }
}
