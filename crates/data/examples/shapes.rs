//! Draws a data set for detection: `shapes FOLDER [COUNT] [SIZE] [SEED]`.

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, numbers @ ..] = arguments.as_slice() else {
        return Err("usage: shapes FOLDER [COUNT] [SIZE] [SEED]".into());
    };
    let number = |index: usize, usual: u64| numbers.get(index).map_or(Ok(usual), |text| text.parse::<u64>());
    let (count, size, seed) = (number(0, 1000)?, number(1, 128)?, number(2, 0)?);
    data::shapes::write(Path::new(folder), usize::try_from(count)?, u32::try_from(size)?, seed)?;
    println!("{count} images of {size}×{size} and `annotations.json` are in `{folder}`");
    Ok(())
}
