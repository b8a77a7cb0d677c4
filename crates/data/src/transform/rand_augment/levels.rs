//! Operations that change bytes in place: torchvision's formulas for byte tensors, in `f32`.

/// The three planes of an image.
fn channels(planes: &[u8]) -> [&[u8]; 3] {
    let (red, rest) = planes.split_at(planes.len() / 3);
    let (green, blue) = rest.split_at(rest.len() / 2);
    [red, green, blue]
}

/// The byte of a number: cut off, and within its range.
fn byte(number: f32) -> u8 {
    // A cast of Rust's saturates and cuts off.
    number as u8
}

/// A sum with a product that is rounded once, as a fused one is.
fn plus(sum: f32, value: impl Into<f32>, factor: f32) -> f32 {
    (f64::from(sum) + f64::from(value.into()) * f64::from(factor)) as f32
}

/// The grey of each pixel, cut off to a whole number.
fn greys(planes: &[u8]) -> impl Iterator<Item = f32> {
    let [red, green, blue] = channels(planes);
    red.iter().zip(green).zip(blue).map(|((red, green), blue)| {
        let grey = plus(f32::from(*red) * 0.2989, *green, 0.587);
        plus(grey, *blue, 0.114).floor()
    })
}

/// `factor` of a byte and the rest of something else.
fn blend(own: u8, other: f32, factor: f64) -> u8 {
    byte(plus(f32::from(own) * factor as f32, other, (1.0 - factor) as f32))
}

pub(super) fn brightness(planes: &mut [u8], factor: f32) {
    for value in planes {
        *value = byte(f32::from(*value) * factor);
    }
}

pub(super) fn color(planes: &mut [u8], factor: f64) {
    let greys: Vec<f32> = greys(planes).collect();
    let plane = greys.len();
    for channel in planes.chunks_exact_mut(plane.max(1)) {
        for (value, grey) in channel.iter_mut().zip(&greys) {
            *value = blend(*value, *grey, factor);
        }
    }
}

pub(super) fn contrast(planes: &mut [u8], factor: f64) {
    let pixels = (planes.len() / 3).max(1);
    let sum: u64 = greys(planes).map(|grey| grey as u64).sum();
    let mean = (sum as f64 / pixels as f64) as f32;
    for value in planes {
        *value = blend(*value, mean, factor);
    }
}

/// Each pixel but those at the border goes towards or away from the mean of its surroundings, weighted 1 and 5.
pub(super) fn sharpness(planes: &mut [u8], before: &mut Vec<u8>, [height, width]: [usize; 2], factor: f64) {
    if height <= 2 || width <= 2 {
        return;
    }
    before.clear();
    before.extend_from_slice(planes);
    for (channel, before) in planes.chunks_exact_mut(height * width).zip(before.chunks_exact(height * width)) {
        for y in 1..height - 1 {
            let [above, here, below] = [y - 1, y, y + 1].map(|row| &before[row * width..][..width]);
            let out = &mut channel[y * width..][..width];
            for x in 1..width - 1 {
                let three = |row: &[u8]| row[x - 1..=x + 1].iter().map(|value| u32::from(*value)).sum::<u32>();
                let sum = three(above) + three(here) + three(below) + 4 * u32::from(here[x]);
                // Thirteenths never end in a half.
                let smooth = ((2 * sum + 13) / 26) as f32;
                let own = f32::from(here[x]);
                out[x] = byte(own + (smooth - own) * (1.0 - factor) as f32);
            }
        }
    }
}

pub(super) fn posterize(planes: &mut [u8], bits: u32) {
    let mask = !(0xFF_u32 >> bits.min(8)) as u8;
    for value in planes {
        *value &= mask;
    }
}

pub(super) fn solarize(planes: &mut [u8], threshold: f64) {
    for value in planes {
        if f64::from(*value) >= threshold {
            *value = 255 - *value;
        }
    }
}

/// The darkest byte of each channel becomes 0 and the brightest 255.
pub(super) fn autocontrast(planes: &mut [u8]) {
    let plane = (planes.len() / 3).max(1);
    for channel in planes.chunks_exact_mut(plane) {
        let (low, high) = channel.iter().fold((u8::MAX, 0), |(low, high), value| (low.min(*value), high.max(*value)));
        if low >= high {
            continue;
        }
        let scale = f32::from(high - low) * (1.0 / 255.0_f64) as f32;
        for value in channel {
            *value = byte(f32::from(*value - low) / scale);
        }
    }
}

/// All bytes of each channel become about equally frequent, as Pillow's `ImageOps.equalize` does it.
pub(super) fn equalize(planes: &mut [u8]) {
    let plane = (planes.len() / 3).max(1);
    for channel in planes.chunks_exact_mut(plane) {
        let mut counts = [0_usize; 256];
        for value in &*channel {
            counts[usize::from(*value)] += 1;
        }
        let last = counts.iter().rev().copied().find(|count| *count > 0).unwrap_or(0);
        let step = (channel.len() - last) / 255;
        if step == 0 {
            continue;
        }
        let mut sum = step / 2;
        let table = counts.map(|count| {
            let level = (sum / step).min(255) as u8;
            sum += count;
            level
        });
        for value in channel {
            *value = table[usize::from(*value)];
        }
    }
}

pub(super) fn invert(planes: &mut [u8]) {
    for value in planes {
        *value = 255 - *value;
    }
}

/// Turns the hue of each pixel by a part of the colour circle, through numbers of 32 bits from 0 to 1.
pub(super) fn hue(planes: &mut [u8], shift: f32) {
    let plane = planes.len() / 3;
    for at in 0..plane {
        let rgb = [0, 1, 2].map(|channel| f32::from(planes[channel * plane + at]) * (1.0 / 255.0_f64) as f32);
        let [hue, saturation, value] = to_hsv(rgb);
        let turned = to_rgb([(hue + shift).rem_euclid(1.0), saturation, value]);
        for (channel, value) in turned.into_iter().enumerate() {
            planes[channel * plane + at] = byte(value * (255.0 + 1.0 - 1e-3_f64) as f32);
        }
    }
}

fn to_hsv([red, green, blue]: [f32; 3]) -> [f32; 3] {
    let (most, least) = (red.max(green).max(blue), red.min(green).min(blue));
    if most == least {
        return [0.0, 0.0, most];
    }
    let range = most - least;
    let [from_red, from_green, from_blue] = [red, green, blue].map(|value| (most - value) / range);
    let sixths = if most == red {
        from_blue - from_green
    } else if most == green {
        from_red + 2.0 - from_blue
    } else {
        from_green + 4.0 - from_red
    };
    [(sixths * (1.0 / 6.0_f64) as f32 + 1.0) % 1.0, range / most, most]
}

fn to_rgb([hue, saturation, value]: [f32; 3]) -> [f32; 3] {
    let sixth = (hue * 6.0).floor();
    let (part, rest) = (saturation * (hue * 6.0 - sixth), 1.0 - saturation);
    let q = ((1.0 - part) * value).clamp(0.0, 1.0);
    let t = ((part + rest) * value).clamp(0.0, 1.0);
    let p = (rest * value).clamp(0.0, 1.0);
    match (sixth as i64).rem_euclid(6) {
        0 => [value, t, p],
        1 => [q, value, p],
        2 => [p, value, t],
        3 => [p, q, value],
        4 => [t, p, value],
        _ => [value, p, q],
    }
}
