//! Applies every operation of RandAugment to one image: `rand_augment HEIGHT WIDTH MAGNITUDE < planes > all`.
//!
//! Standard input has the bytes of red, green and blue; standard output gets those of all fourteen operations, each in
//! both directions. `benches/peers/rand_augment.py` compares them with torchvision's.

use std::io::{Read, Write};

use data::rand_augment::{NAMES, Operation};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let mut next =
        || arguments.next().ok_or("HEIGHT, WIDTH or MAGNITUDE is missing")?.map_err(|error| error.to_string());
    let (height, width, magnitude) = (next()?, next()?, next()?);
    let mut image = Vec::new();
    std::io::stdin().read_to_end(&mut image)?;
    if image.len() != 3 * height * width {
        return Err(format!("{} bytes are not {height}×{width} pixels", image.len()).into());
    }
    for number in 0..NAMES.len() {
        for turned in [false, true] {
            let (mut planes, mut spare) = (image.clone(), Vec::new());
            let operation = Operation::numbered(number, u32::try_from(magnitude)?, turned, height, width);
            operation.apply(&mut planes, &mut spare, height, width);
            std::io::stdout().write_all(&planes)?;
        }
    }
    Ok(())
}
