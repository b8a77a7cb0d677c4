//! Parsing of plain scalars: by YAML 1.2's core schema for our own keys, and like PyYAML (YAML 1.1) for SkyPilot's, so
//! that a file means the same in both.

use super::tree::{Kind, Raw};

/// The rules by which a scalar is parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// YAML 1.2.2, section 10.3.
    Core,
    /// YAML 1.1 with the patterns of PyYAML's `Resolver`.
    Python,
}

/// A scalar with its meaning.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    /// A date, with or without a time; only in the Python dialect.
    Date,
    Text,
}

/// Parses the scalar in this dialect.
pub(super) fn resolve(raw: &Raw, dialect: Dialect) -> Scalar {
    match (raw.kind, dialect) {
        (Kind::Text, _) => Scalar::Text,
        (Kind::Plain, Dialect::Core) => core(&raw.text),
        (Kind::Plain, Dialect::Python) => python(&raw.text),
    }
}

fn core(text: &str) -> Scalar {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "true" | "True" | "TRUE" => return Scalar::Bool(true),
        "false" | "False" | "FALSE" => return Scalar::Bool(false),
        ".nan" | ".NaN" | ".NAN" => return Scalar::Float(f64::NAN),
        _ => {}
    }
    let (negative, digits) = sign(text);
    if matches!(digits, ".inf" | ".Inf" | ".INF") {
        return Scalar::Float(infinity(negative));
    }
    let radix = |prefix: &str, radix: u32| {
        let digits = text.strip_prefix(prefix)?;
        (!digits.is_empty() && digits.chars().all(|c| c.is_digit(radix))).then(|| integer(digits, radix, false))
    };
    if let Some(number) = radix("0o", 8).or_else(|| radix("0x", 16)) {
        return number;
    }
    if !digits.is_empty() && all_digits(digits) {
        return integer(digits, 10, negative);
    }
    let (mantissa, exponent) = match digits.find(['e', 'E']) {
        Some(at) => (&digits[..at], Some(sign(&digits[at + 1..]).1)),
        None => (digits, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let has_digits = !whole.is_empty() || !fraction.is_empty();
    let is_float = has_digits
        && all_digits(whole)
        && all_digits(fraction)
        && exponent.is_none_or(|exponent| !exponent.is_empty() && all_digits(exponent));
    if is_float { text.parse().map_or(Scalar::Text, Scalar::Float) } else { Scalar::Text }
}

/// In the order in which PyYAML tries them: bool, float, int, null, timestamp.
fn python(text: &str) -> Scalar {
    match text {
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return Scalar::Bool(true),
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => return Scalar::Bool(false),
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        ".nan" | ".NaN" | ".NAN" => return Scalar::Float(f64::NAN),
        _ => {}
    }
    let (negative, digits) = sign(text);
    python_float(digits, negative, text).or_else(|| python_int(digits, negative)).unwrap_or(if is_date(text) {
        Scalar::Date
    } else {
        Scalar::Text
    })
}

/// A point is required, and a sign in the exponent: `1e3` is text.
fn python_float(digits: &str, negative: bool, text: &str) -> Option<Scalar> {
    if matches!(digits, ".inf" | ".Inf" | ".INF") {
        return Some(Scalar::Float(infinity(negative)));
    }
    let (mantissa, exponent) = match digits.find(['e', 'E']) {
        Some(at) => (&digits[..at], Some(&digits[at + 1..])),
        None => (digits, None),
    };
    let (whole, fraction) = mantissa.split_once('.')?;
    let signed = |exponent: &str| exponent.strip_prefix(['+', '-']).is_some_and(|e| !e.is_empty() && all_digits(e));
    if !exponent.is_none_or(signed) || !is_grouped(fraction) {
        return None;
    }
    if whole.contains(':') {
        let value = exponent.is_none().then(|| sexagesimal(whole))?? + parse_grouped(&format!("0.{fraction}"))?;
        return Some(Scalar::Float(if negative { -value } else { value }));
    }
    // `.5` takes no sign and no leading underscore; `+.5` is text.
    let starts_well = match whole.is_empty() {
        true => fraction.starts_with(|c: char| c.is_ascii_digit()) && text.starts_with('.'),
        false => whole.starts_with(|c: char| c.is_ascii_digit()) && is_grouped(whole),
    };
    starts_well.then(|| parse_grouped(text).map(Scalar::Float)).flatten()
}

fn python_int(digits: &str, negative: bool) -> Option<Scalar> {
    let bare = |digits: &str| digits.replace('_', "");
    let in_radix = |digits: &str, radix: u32| {
        let known = !digits.is_empty() && digits.chars().all(|c| c == '_' || c.is_digit(radix));
        let digits = bare(digits);
        (known && !digits.is_empty()).then(|| integer(&digits, radix, negative))
    };
    if digits == "0" {
        return Some(Scalar::Int(0));
    }
    if let Some(binary) = digits.strip_prefix("0b") {
        return in_radix(binary, 2);
    }
    if let Some(hexadecimal) = digits.strip_prefix("0x") {
        return in_radix(hexadecimal, 16);
    }
    if let Some(octal) = digits.strip_prefix('0') {
        // `0_` has digits enough for PyYAML: its one zero.
        return if bare(octal).is_empty() && is_grouped(octal) { Some(Scalar::Int(0)) } else { in_radix(octal, 8) };
    }
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if digits.contains(':') {
        let value = sexagesimal(digits)?;
        return Some(Scalar::Int(if negative { -(value as i128) } else { value as i128 }));
    }
    in_radix(digits, 10)
}

/// Sexagesimal numbers such as `1:30`. The first part may be grouped with `_`, the later ones are below 60.
fn sexagesimal(digits: &str) -> Option<f64> {
    let mut parts = digits.split(':');
    let first = parts.next()?;
    if !first.starts_with(|c: char| c.is_ascii_digit()) || !is_grouped(first) {
        return None;
    }
    let mut value = parse_grouped(first)?;
    for part in parts {
        let is_sixtieth = matches!(part.len(), 1 | 2) && all_digits(part) && (part.len() == 1 || part < "60");
        if !is_sixtieth {
            return None;
        }
        value = value * 60.0 + part.parse::<f64>().ok()?;
    }
    Some(value)
}

/// `2024-01-31`, or `2024-1-31 12:00:00.5 +1:30` as PyYAML matches it; whether the day exists is not asked.
fn is_date(text: &str) -> bool {
    let date = text.find(['T', 't', ' ', '\t']).map_or(text, |at| &text[..at]);
    let rest = &text[date.len()..];
    let parts: Vec<&str> = date.split('-').collect();
    let [year, month, day] = parts[..] else { return false };
    let numeric = |part: &str, lengths: &[usize]| lengths.contains(&part.len()) && all_digits(part);
    if rest.is_empty() {
        return numeric(year, &[4]) && numeric(month, &[2]) && numeric(day, &[2]);
    }
    let time = rest.trim_start_matches(['T', 't', ' ', '\t']);
    let clock = time.find(|c: char| !c.is_ascii_digit() && c != ':' && c != '.').map_or(time, |at| &time[..at]);
    let zone = time[clock.len()..].trim_start_matches([' ', '\t']);
    let clock = clock.split_once('.').map_or(clock, |(clock, _)| clock);
    let clock: Vec<&str> = clock.split(':').collect();
    let [hour, minute, second] = clock[..] else { return false };
    let in_zone = |zone: &str| {
        let (hours, minutes) = zone.split_once(':').unwrap_or((zone, "00"));
        numeric(hours, &[1, 2]) && numeric(minutes, &[2])
    };
    numeric(year, &[4])
        && numeric(month, &[1, 2])
        && numeric(day, &[1, 2])
        && numeric(hour, &[1, 2])
        && numeric(minute, &[2])
        && numeric(second, &[2])
        && (zone.is_empty() || zone == "Z" || zone.strip_prefix(['+', '-']).is_some_and(in_zone))
}

/// Python's `str` of the value that PyYAML parses; `None` for null and timestamps. SkyPilot converts the values of
/// `envs` to text this way before it checks their types.
pub(super) fn python_text(raw: &Raw) -> Option<String> {
    match resolve(raw, Dialect::Python) {
        Scalar::Null => None,
        Scalar::Bool(true) => Some("True".to_owned()),
        Scalar::Bool(false) => Some("False".to_owned()),
        Scalar::Int(value) => Some(value.to_string()),
        Scalar::Float(value) => Some(python_float_text(value)),
        Scalar::Date => (raw.text.len() == 10).then(|| raw.text.clone()),
        Scalar::Text => Some(raw.text.clone()),
    }
}

/// Python's `repr` of a float: the shortest digits that read back the same, with an exponent below 1e-4 and from 1e16.
fn python_float_text(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf".to_owned() } else { "-inf".to_owned() };
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value == 0.0 || (-4..16).contains(&exponent) {
        return format!("{value:?}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

fn sign(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

/// A number that is too long for 128 bits becomes the floating-point number next to it.
fn integer(digits: &str, radix: u32, negative: bool) -> Scalar {
    let sign = if negative { -1 } else { 1 };
    match i128::from_str_radix(digits, radix) {
        Ok(value) => Scalar::Int(sign * value),
        Err(_) => Scalar::Float(digits.parse::<f64>().unwrap_or(f64::INFINITY) * sign as f64),
    }
}

fn infinity(negative: bool) -> f64 {
    if negative { f64::NEG_INFINITY } else { f64::INFINITY }
}

fn all_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_grouped(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_')
}

fn parse_grouped(text: &str) -> Option<f64> {
    text.replace('_', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How a plain scalar reads under our own keys, how under SkyPilot's, and its text as a variable.
    fn check(text: &str, ours: &str, theirs: &str, variable: &str) {
        let raw = Raw { text: text.to_owned(), kind: Kind::Plain };
        let show = |scalar: Scalar| match scalar {
            Scalar::Null => "null".to_owned(),
            Scalar::Bool(value) => value.to_string(),
            Scalar::Int(value) => value.to_string(),
            Scalar::Float(value) => format!("{value:?}"),
            Scalar::Date => "date".to_owned(),
            Scalar::Text => "text".to_owned(),
        };
        let found = [show(resolve(&raw, Dialect::Core)), show(resolve(&raw, Dialect::Python))];
        assert_eq!(found, [ours, theirs], "`{text}`");
        assert_eq!(python_text(&raw).unwrap_or("-".into()), variable, "`{text}` as a variable");
    }

    /// The third and fourth column were read from PyYAML 6.0.3.
    #[test]
    fn scalars_mean_what_their_dialect_says() {
        check("", "null", "null", "-");
        check("~", "null", "null", "-");
        check("Null", "null", "null", "-");
        check("nULL", "text", "text", "nULL");
        check("yes", "text", "true", "True");
        check("No", "text", "false", "False");
        check("on", "text", "true", "True");
        check("OFF", "text", "false", "False");
        check("y", "text", "text", "y");
        check("true", "true", "true", "True");
        check("0", "0", "0", "0");
        check("-0", "0", "0", "0");
        check("12", "12", "12", "12");
        check("+12", "12", "12", "12");
        check("010", "10", "8", "8");
        check("08", "8", "text", "08");
        check("0_", "text", "0", "0");
        check("0o10", "8", "text", "0o10");
        check("0x1F", "31", "31", "31");
        check("-0x1F", "text", "-31", "-31");
        check("0b11", "text", "3", "3");
        check("1_000", "text", "1000", "1000");
        check("_1", "text", "text", "_1");
        check("1:30", "text", "90", "90");
        check("-1:30", "text", "-90", "-90");
        check("1:60", "text", "text", "1:60");
        check("0:30", "text", "text", "0:30");
        check("1:30:15.5", "text", "5415.5", "5415.5");
        check("1e3", "1000.0", "text", "1e3");
        check("1.e3", "1000.0", "text", "1.e3");
        check("1e+3", "1000.0", "text", "1e+3");
        check("1.0e+3", "1000.0", "1000.0", "1000.0");
        check("1.5e-07", "1.5e-7", "1.5e-7", "1.5e-07");
        check("1.0e+16", "1e16", "1e16", "1e+16");
        check("0.00001", "1e-5", "1e-5", "1e-05");
        check("0.0001", "0.0001", "0.0001", "0.0001");
        check("1.", "1.0", "1.0", "1.0");
        check(".5", "0.5", "0.5", "0.5");
        check("-.5", "-0.5", "text", "-.5");
        check("1_0.5_0", "text", "10.5", "10.5");
        check("3.10", "3.1", "3.1", "3.1");
        check("1.2.3", "text", "text", "1.2.3");
        check(".", "text", "text", ".");
        check("-", "text", "text", "-");
        check(".inf", "inf", "inf", "inf");
        check("-.Inf", "-inf", "-inf", "-inf");
        check(".nan", "NaN", "NaN", "nan");
        check("2024-01-31", "text", "date", "2024-01-31");
        check("2024-1-31", "text", "text", "2024-1-31");
        check("2024-01-31T12:00:00Z", "text", "date", "-");
        check("hello", "text", "text", "hello");
        check("12345678901234567890", "12345678901234567890", "12345678901234567890", "12345678901234567890");
    }

    #[test]
    fn quotes_make_text() {
        let raw = Raw { text: "010".to_owned(), kind: Kind::Text };
        assert_eq!(resolve(&raw, Dialect::Python), Scalar::Text);
        assert_eq!(python_text(&raw).as_deref(), Some("010"));
    }
}
