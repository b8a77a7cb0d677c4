//! Protocol buffers, as far as an ONNX file needs them to be written
//! (<https://protobuf.dev/programming-guides/encoding/>).

/// A message that is being written.
#[derive(Debug, Clone, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    /// A number.
    pub fn number(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field) << 3);
        self.varint(value);
    }

    /// A number of 32 bits with a point.
    pub fn float(&mut self, field: u32, value: f32) {
        self.varint(u64::from(field) << 3 | 5);
        self.0.extend(value.to_le_bytes());
    }

    /// Text or bytes.
    pub fn bytes(&mut self, field: u32, value: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    /// A message within this one.
    pub fn message(&mut self, field: u32, value: &Message) {
        self.bytes(field, &value.0);
    }

    /// What was written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::Message;

    /// The examples of the encoding's own guide.
    #[test]
    fn fields_are_encoded_as_the_guide_says() {
        let mut message = Message::default();
        message.number(1, 150);
        message.bytes(2, b"testing");
        assert_eq!(message.into_bytes(), b"\x08\x96\x01\x12\x07testing");
    }
}
