//! Where a rank stands: how many groups share the samples, and how many ranks of a group divide the layers.
//!
//! Ranks of a group are neighbours, for they say most to each other. Pure arithmetic.

/// The device mesh of all ranks, and a position on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMesh {
    /// This rank among all.
    rank: u32,
    /// Parts of a batch.
    data: u32,
    /// Parts of a layer.
    tensor: u32,
}

impl DeviceMesh {
    /// That of a rank without others.
    pub const ALONE: DeviceMesh = DeviceMesh { rank: 0, data: 1, tensor: 1 };

    /// The position of a rank among `size`, of which `tensor` divide each layer; `None` if `size` is not a multiple.
    pub fn of(rank: u32, size: u32, tensor: u32) -> Option<DeviceMesh> {
        let goes_up = tensor > 0 && size.is_multiple_of(tensor) && rank < size;
        goes_up.then(|| DeviceMesh { rank, data: size / tensor, tensor })
    }

    /// Parts of a batch.
    pub fn data(self) -> u32 {
        self.data
    }

    /// Parts of a layer.
    pub fn tensor(self) -> u32 {
        self.tensor
    }

    /// Which part of a batch is here.
    pub fn data_place(self) -> u32 {
        self.rank / self.tensor
    }

    /// Which part of a layer is here.
    pub fn tensor_place(self) -> u32 {
        self.rank % self.tensor
    }

    /// The ranks that have the same part of the layers, and other samples.
    pub fn data_ranks(self) -> Vec<u32> {
        (0..self.data).map(|place| place * self.tensor + self.tensor_place()).collect()
    }

    /// The ranks that have the same samples, and other parts of the layers.
    pub fn tensor_ranks(self) -> Vec<u32> {
        (0..self.tensor).map(|place| self.data_place() * self.tensor + place).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_divide_the_layers() {
        let check = |[rank, size, tensor]: [u32; 3], expected: Option<([u32; 2], &[u32], &[u32])>| {
            let found = DeviceMesh::of(rank, size, tensor);
            let told =
                found.map(|mesh| ([mesh.data_place(), mesh.tensor_place()], mesh.data_ranks(), mesh.tensor_ranks()));
            let expected = expected.map(|(places, data, tensor)| (places, data.to_vec(), tensor.to_vec()));
            assert_eq!(told, expected, "rank {rank} of {size}, {tensor} parts");
        };
        check([0, 1, 1], Some(([0, 0], &[0], &[0])));
        check([1, 4, 1], Some(([1, 0], &[0, 1, 2, 3], &[1])));
        check([1, 4, 2], Some(([0, 1], &[1, 3], &[0, 1])));
        check([2, 4, 2], Some(([1, 0], &[0, 2], &[2, 3])));
        check([3, 4, 4], Some(([0, 3], &[3], &[0, 1, 2, 3])));
        check([0, 3, 2], None);
        check([0, 2, 0], None);
        check([2, 2, 1], None);
    }
}
