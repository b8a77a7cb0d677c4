//! A pickle, read as data: nothing that it names is ever called. Names stand for themselves, and a call of anything but the
//! few functions that rebuild tensors gives a value that nothing can be done with.
//!
//! Values lie in one list and refer to each other by their places, so that memory is bounded by the file, whatever it
//! repeats. The opcodes are those of Python's `pickletools`, protocols 2 to 5.

use std::collections::BTreeMap;

use super::Unreadable;

/// The place of a value.
pub(super) type Place = usize;

/// A value of Python's, as far as it matters here.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    None,
    Int(i64),
    Text(String),
    Tuple(Vec<Place>),
    List(Vec<Place>),
    Dict(Vec<(Place, Place)>),
    /// A module and a name in it, such as `torch FloatStorage`.
    Global(String),
    /// What a persistent id says: of torch, where a storage is.
    Persistent(Place),
    /// The arguments of `_rebuild_tensor_v2`.
    Tensor(Vec<Place>),
    /// Anything else.
    Other,
}

/// The values of one pickle.
#[derive(Debug, Default)]
pub(super) struct Pickle {
    values: Vec<Value>,
    /// The value that was pickled.
    pub root: Place,
    /// Bytes up to its end.
    pub length: usize,
}

impl Pickle {
    /// Reads the pickle that `bytes` begin with.
    pub fn read(bytes: &[u8]) -> Result<Pickle, Unreadable> {
        let machine = Machine {
            bytes,
            at: 0,
            pickle: Pickle::default(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: BTreeMap::new(),
        };
        machine.run()
    }

    /// A value.
    pub fn get(&self, place: Place) -> &Value {
        self.values.get(place).unwrap_or(&Value::Other)
    }

    /// How many values there are.
    pub fn count(&self) -> usize {
        self.values.len()
    }

    /// A number.
    pub fn int(&self, place: Place) -> Option<i64> {
        if let Value::Int(number) = self.get(place) { Some(*number) } else { None }
    }

    /// A text.
    pub fn text(&self, place: Place) -> Option<&str> {
        if let Value::Text(text) = self.get(place) { Some(text) } else { None }
    }

    /// The elements of a tuple or a list.
    pub fn elements(&self, place: Place) -> Option<&[Place]> {
        match self.get(place) {
            Value::Tuple(elements) | Value::List(elements) => Some(elements),
            Value::None | Value::Int(_) | Value::Text(_) | Value::Dict(_) => None,
            Value::Global(_) | Value::Persistent(_) | Value::Tensor(_) | Value::Other => None,
        }
    }

    /// The entries of a dictionary.
    pub fn entries(&self, place: Place) -> Option<&[(Place, Place)]> {
        if let Value::Dict(entries) = self.get(place) { Some(entries) } else { None }
    }
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    pickle: Pickle,
    stack: Vec<Place>,
    /// Heights of the stack.
    marks: Vec<usize>,
    memo: BTreeMap<u64, Place>,
}

impl Machine<'_> {
    fn run(mut self) -> Result<Pickle, Unreadable> {
        loop {
            let [code] = self.take()?;
            match code {
                b'.' => {
                    self.pickle.root = self.pop()?;
                    self.pickle.length = self.at;
                    return Ok(self.pickle);
                }
                0x80 => drop(self.take::<1>()?),
                0x95 => drop(self.take::<8>()?),
                b'(' => self.marks.push(self.stack.len()),
                b'0' => drop(self.pop()?),
                b'2' => {
                    let top = self.top()?;
                    self.stack.push(top);
                }
                b'N' => self.push(Value::None),
                0x88 | 0x89 | b')' | b']' | b'}' | 0x8f | b'J' | b'K' | b'M' | b'G' | 0x8a => self.literal(code)?,
                b'X' | 0x8c | 0x8d | b'U' | b'T' | b'C' | b'B' | 0x8e => self.string(code)?,
                b'q' | b'r' | 0x94 | b'h' | b'j' => self.memoize(code)?,
                b't' | 0x85 | 0x86 | 0x87 => self.tuple(code)?,
                b'a' | b'e' | 0x90 => self.append(code)?,
                b's' | b'u' => self.set_items(code)?,
                b'c' | 0x93 => self.global(code)?,
                b'Q' => {
                    let id = self.pop()?;
                    self.push(Value::Persistent(id));
                }
                b'R' | 0x81 => self.call()?,
                b'b' => drop(self.pop()?),
                other => return Err(Unreadable(format!("it has the opcode {other:#04x} at byte {}", self.at - 1))),
            }
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Unreadable> {
        let found = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<N>());
        let found = *found.ok_or_else(|| Unreadable("it ends too early".into()))?;
        self.at += N;
        Ok(found)
    }

    fn take_many(&mut self, count: u64) -> Result<Vec<u8>, Unreadable> {
        let end = usize::try_from(count).ok().and_then(|count| self.at.checked_add(count));
        let found = end.and_then(|end| self.bytes.get(self.at..end));
        let found = found.ok_or_else(|| Unreadable("it ends too early".into()))?.to_vec();
        self.at += found.len();
        Ok(found)
    }

    fn line(&mut self) -> Result<String, Unreadable> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let length = rest.iter().position(|byte| *byte == b'\n');
        let length = length.ok_or_else(|| Unreadable("it ends within a line".into()))?;
        self.at += length + 1;
        Ok(String::from_utf8_lossy(&rest[..length]).into_owned())
    }

    fn push(&mut self, value: Value) {
        self.pickle.values.push(value);
        self.stack.push(self.pickle.values.len() - 1);
    }

    fn pop(&mut self) -> Result<Place, Unreadable> {
        self.stack.pop().ok_or_else(|| Unreadable("it takes a value where there is none".into()))
    }

    fn top(&self) -> Result<Place, Unreadable> {
        self.stack.last().copied().ok_or_else(|| Unreadable("it takes a value where there is none".into()))
    }

    /// The values since the last mark.
    fn marked(&mut self) -> Result<Vec<Place>, Unreadable> {
        let mark = self.marks.pop().filter(|mark| *mark <= self.stack.len());
        Ok(self.stack.split_off(mark.ok_or_else(|| Unreadable("it has no mark where one belongs".into()))?))
    }

    fn literal(&mut self, code: u8) -> Result<(), Unreadable> {
        let value = match code {
            0x88 => Value::Int(1),
            0x89 => Value::Int(0),
            b')' => Value::Tuple(Vec::new()),
            b']' | 0x8f => Value::List(Vec::new()),
            b'}' => Value::Dict(Vec::new()),
            b'J' => Value::Int(i64::from(i32::from_le_bytes(self.take()?))),
            b'K' => Value::Int(i64::from(u8::from_le_bytes(self.take()?))),
            b'M' => Value::Int(i64::from(u16::from_le_bytes(self.take()?))),
            0x8a => {
                let [length] = self.take()?;
                let bytes = self.take_many(length.into())?;
                integer(&bytes)
            }
            _ => {
                self.take::<8>()?;
                Value::Other
            }
        };
        self.push(value);
        Ok(())
    }

    fn string(&mut self, code: u8) -> Result<(), Unreadable> {
        let length = match code {
            0x8c | b'U' | b'C' => u64::from(u8::from_le_bytes(self.take()?)),
            b'X' | b'T' | b'B' => u64::from(u32::from_le_bytes(self.take()?)),
            _ => u64::from_le_bytes(self.take()?),
        };
        let bytes = self.take_many(length)?;
        self.push(Value::Text(String::from_utf8_lossy(&bytes).into_owned()));
        Ok(())
    }

    fn memoize(&mut self, code: u8) -> Result<(), Unreadable> {
        let name = match code {
            b'q' | b'h' => u64::from(u8::from_le_bytes(self.take()?)),
            b'r' | b'j' => u64::from(u32::from_le_bytes(self.take()?)),
            _ => self.memo.len() as u64,
        };
        if matches!(code, b'h' | b'j') {
            let place = self.memo.get(&name).copied();
            self.stack.push(place.ok_or_else(|| Unreadable("it refers to what it did not name".into()))?);
        } else {
            let top = self.top()?;
            self.memo.insert(name, top);
        }
        Ok(())
    }

    fn tuple(&mut self, code: u8) -> Result<(), Unreadable> {
        let elements = match code {
            b't' => self.marked()?,
            _ => {
                let count = usize::from(code - 0x84);
                let start = self.stack.len().checked_sub(count);
                self.stack.split_off(start.ok_or_else(|| Unreadable("it takes a value where there is none".into()))?)
            }
        };
        self.push(Value::Tuple(elements));
        Ok(())
    }

    fn append(&mut self, code: u8) -> Result<(), Unreadable> {
        let new = if code == b'a' { vec![self.pop()?] } else { self.marked()? };
        let top = self.top()?;
        if let Some(Value::List(elements)) = self.pickle.values.get_mut(top) {
            elements.extend(new);
        }
        Ok(())
    }

    fn set_items(&mut self, code: u8) -> Result<(), Unreadable> {
        let new = match code {
            b's' => {
                let value = self.pop()?;
                vec![self.pop()?, value]
            }
            _ => self.marked()?,
        };
        let top = self.top()?;
        if let Some(Value::Dict(entries)) = self.pickle.values.get_mut(top) {
            entries.extend(new.chunks_exact(2).map(|pair| (pair[0], pair[1])));
        }
        Ok(())
    }

    fn global(&mut self, code: u8) -> Result<(), Unreadable> {
        let (module, name) = match code {
            b'c' => (self.line()?, self.line()?),
            _ => {
                let (name, module) = (self.pop()?, self.pop()?);
                let text = |place| self.pickle.text(place).unwrap_or_default().to_owned();
                (text(module), text(name))
            }
        };
        self.push(Value::Global(format!("{module} {name}")));
        Ok(())
    }

    /// What a call of a function would give, where it is known.
    fn call(&mut self) -> Result<(), Unreadable> {
        let (arguments, function) = (self.pop()?, self.pop()?);
        let Value::Global(name) = self.pickle.get(function).clone() else {
            self.push(Value::Other);
            return Ok(());
        };
        let arguments = self.pickle.elements(arguments).unwrap_or_default().to_vec();
        match (name.as_str(), &arguments[..]) {
            ("collections OrderedDict", []) => self.push(Value::Dict(Vec::new())),
            ("torch._utils _rebuild_tensor_v2", _) => self.push(Value::Tensor(arguments)),
            ("torch._utils _rebuild_parameter", [data, ..]) => self.stack.push(*data),
            ("torch._utils _rebuild_parameter_with_state", [data, ..]) => self.stack.push(*data),
            ("torch Size", [size]) => self.stack.push(*size),
            (_, _) => self.push(Value::Other),
        }
        Ok(())
    }
}

/// A little-endian number of any length; none that fits into 64 bits is of no use here.
fn integer(bytes: &[u8]) -> Value {
    if bytes.len() > 8 {
        return Value::Other;
    }
    let fill = if bytes.last().is_some_and(|last| *last >= 0x80) { 0xFF } else { 0 };
    let mut wide = [fill; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    Value::Int(i64::from_le_bytes(wide))
}
