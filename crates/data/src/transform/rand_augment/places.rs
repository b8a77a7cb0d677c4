//! Operations that move pixels: each shows the nearest pixel of where it comes from, or black from outside.

/// Where the pixel at (x, y) comes from: `matrix · ((x, y) − centre − shift) + centre`, seen from the image's middle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Move {
    matrix: [f64; 4],
    centre: [f64; 2],
    shift: [f64; 2],
}

impl Move {
    /// Rows move by a share of their distance from the top, columns by a share of theirs from the left.
    pub fn shear([x, y]: [f64; 2], height: usize, width: usize) -> Move {
        let corner = [-0.5 * width as f64, -0.5 * height as f64];
        Move { matrix: [1.0, x, y, 1.0], centre: corner, shift: [0.0; 2] }
    }

    /// Pixels to the right and down.
    pub fn shift(by: [f64; 2]) -> Move {
        Move { matrix: [1.0, 0.0, 0.0, 1.0], centre: [0.0; 2], shift: by }
    }

    /// Counter-clockwise around the middle.
    pub fn turn(degrees: f64) -> Move {
        let (sine, cosine) = sine_and_cosine(degrees * (std::f64::consts::PI / 180.0));
        Move { matrix: [cosine, -sine, sine, cosine], centre: [0.0; 2], shift: [0.0; 2] }
    }

    /// Writes the pixels of `planes` to where they go; `out` is black before.
    pub fn apply(&self, planes: &[u8], out: &mut [u8], height: usize, width: usize) {
        let (plane, middle) = (height * width, [0.5 * width as f64 - 0.5, 0.5 * height as f64 - 0.5]);
        let [cx, cy] = self.centre;
        let from = |to: usize, axis: usize| to as f64 - middle[axis] - self.centre[axis] - self.shift[axis];
        for y in 0..height {
            let v = from(y, 1);
            for x in 0..width {
                let u = from(x, 0);
                let column = (self.matrix[0] * u + self.matrix[1] * v + cx + middle[0]).round_ties_even();
                let row = (self.matrix[2] * u + self.matrix[3] * v + cy + middle[1]).round_ties_even();
                let is_inside = (0.0..width as f64).contains(&column) && (0.0..height as f64).contains(&row);
                if is_inside {
                    let (source, target) = (row as usize * width + column as usize, y * width + x);
                    for channel in 0..3 {
                        out[channel * plane + target] = planes[channel * plane + source];
                    }
                }
            }
        }
    }
}

/// Both by their series: the same bits on every machine. For angles up to a right one.
fn sine_and_cosine(angle: f64) -> (f64, f64) {
    let (mut sine, mut cosine, mut term) = (0.0, 0.0, 1.0);
    for n in 0..24 {
        match n % 4 {
            0 => cosine += term,
            1 => sine += term,
            2 => cosine -= term,
            _ => sine -= term,
        }
        term *= angle / f64::from(n + 1);
    }
    (sine, cosine)
}
