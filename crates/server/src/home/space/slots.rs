//! A file of a fixed size that other processes read while it is written in place.
//!
//! On a full disk there is no temporary file that could take its place. So it has two slots, and a write changes the one that
//! is older. A reader takes the newest slot that is whole, as its checksum shows: whatever of a write has arrived, that is the
//! state before it or after it.

/// Bytes of a slot.
const SLOT: usize = 16 << 10;

/// The first word of a slot.
const MAGIC: &str = "gradus-slot-1";

/// Bytes before the content of a slot: its first word, number, length and checksum, each with a blank or the end of the line.
const HEADER: usize = MAGIC.len() + 1 + 20 + 1 + 5 + 1 + 8 + 1;

/// The most that a slot holds.
pub const ROOM: usize = SLOT - HEADER;

/// Where the state with this number is written: not where the one before it is.
pub fn offset(number: u64) -> u64 {
    number % 2 * SLOT as u64
}

/// The slot of the state with this number, with blanks up to its end.
pub fn slot(number: u64, content: &[u8]) -> Vec<u8> {
    let sum = checksum(number, content);
    let mut text = format!("{MAGIC} {number:020} {:05} {sum:08x}\n", content.len()).into_bytes();
    text.extend_from_slice(content);
    text.resize(SLOT, b' ');
    text
}

/// The newest state in a file, if one is whole.
pub fn newest(file: &[u8]) -> Option<&[u8]> {
    // An earlier version writes its only state at the start, as JSON.
    if file.first() == Some(&b'[') {
        return file.get(..file.len().min(SLOT));
    }
    file.chunks(SLOT).filter_map(whole).max_by_key(|(number, _)| *number).map(|(_, content)| content)
}

/// The number and the content of a slot that was written to its end.
fn whole(slot: &[u8]) -> Option<(u64, &[u8])> {
    let (header, rest) = slot.split_at_checked(HEADER)?;
    let mut words = std::str::from_utf8(header).ok()?.split_whitespace();
    if words.next() != Some(MAGIC) {
        return None;
    }
    let number: u64 = words.next()?.parse().ok()?;
    let length: usize = words.next()?.parse().ok()?;
    let sum = u32::from_str_radix(words.next()?, 16).ok()?;
    let content = rest.get(..length)?;
    (checksum(number, content) == sum).then_some((number, content))
}

fn checksum(number: u64, content: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&number.to_le_bytes()), content)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each state is read while the next one is written, whatever part of it has arrived.
    #[test]
    fn a_state_is_read_whole_while_the_next_one_is_written() {
        // The same length, no common byte, and the longest that fits.
        let states: Vec<Vec<u8>> = (0..5).map(|number| vec![b'a' + number; ROOM]).collect();
        let mut file = [slot(0, &states[0]), slot(1, &states[1])].concat();
        assert_eq!(newest(&file), Some(&states[1][..]));
        for (number, content) in (0..).zip(&states).skip(2) {
            let (at, new) = (offset(number) as usize, slot(number, content));
            let before = file.clone();
            for end in (0..SLOT).step_by(61) {
                // The kernel writes pages in any order: the beginning may come first, or the end.
                for part in [0..end, end..SLOT] {
                    file.clone_from(&before);
                    file[at..][part.clone()].copy_from_slice(&new[part.clone()]);
                    let found = newest(&file);
                    let is_old = found == Some(&states[number as usize - 1][..]);
                    assert!(is_old || found == Some(&content[..]), "state {number}, {part:?}");
                }
            }
            file[at..][..SLOT].copy_from_slice(&new);
            assert_eq!(newest(&file), Some(&content[..]));
        }
    }

    #[test]
    fn what_is_no_slot_is_passed_over() {
        let good = slot(7, b"[1]");
        for bad in [vec![], b"gradus-slot-1".to_vec(), vec![0; SLOT], vec![0xff; SLOT], slot(8, &[b'x'; SLOT])] {
            assert_eq!(newest(&bad), None);
            let mut file = bad;
            file.resize(SLOT, b' ');
            assert_eq!(newest(&[file, good.clone()].concat()), Some(&b"[1]"[..]));
        }
        let long = String::from_utf8(slot(9, b"[1]")).unwrap().replace(" 00003 ", " 99999 ");
        assert_eq!(newest(long.as_bytes()), None);
        assert_eq!(good.len(), slot(u64::MAX, &[b'x'; ROOM]).len());
    }
}
