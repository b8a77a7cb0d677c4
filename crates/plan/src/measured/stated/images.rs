//! A network of images is read for the size of images that a row states, and not for that of its file.

use super::networks::Networks;
use crate::measured::ineligible::Ineligible;
use crate::measured::row::MeasuredRow;
use crate::model::Graph;
use crate::model::graph::Input;
use crate::model::read::SampleShape;

/// No image has a longer side.
const LONGEST: u64 = 1 << 16;

/// Channels, height and width of the images that a network reads; `None` where it reads none.
pub fn image(graph: &Graph) -> Option<[u64; 3]> {
    graph.inputs.iter().find_map(|input| match input {
        Input::Image(image) => Some(*image),
        Input::Tokens(_) | Input::Sound(_) | Input::Values(_) => None,
    })
}

/// The network for images of the size that a row states; as it is where the row states none, or it reads no images.
///
/// # Errors
/// A size that is none, or that the network's file does not take.
pub fn sized(graph: Graph, row: &MeasuredRow, networks: &Networks) -> Result<Graph, Ineligible> {
    let Some(own) = image(&graph).filter(|_| !row.size.trim().is_empty()) else { return Ok(graph) };
    let refused = || Ineligible::Samples(row.size.clone());
    let stated = size(&row.size, own[0]).ok_or_else(refused)?;
    if stated == own {
        return Ok(graph);
    }
    let shape = SampleShape { image: Some(stated), ..SampleShape::default() };
    let graph =
        networks.graph(&row.model, &shape).map_err(|why| Ineligible::Network { name: row.model.clone(), why })?;
    // A file may fix the size of its input.
    if image(&graph) == Some(stated) { Ok(graph) } else { Err(refused()) }
}

/// `448`, `600x800` or `3x600x800` as channels, height and width.
fn size(text: &str, channels: u64) -> Option<[u64; 3]> {
    let sides: Option<Vec<u64>> = text.split(['x', '×']).map(|side| side.trim().parse().ok()).collect();
    let image = match sides?.as_slice() {
        [side] => [channels, *side, *side],
        [height, width] => [channels, *height, *width],
        [channels, height, width] => [*channels, *height, *width],
        _ => return None,
    };
    image.iter().all(|side| (1..=LONGEST).contains(side)).then_some(image)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::stated::NetworkSource;

    #[test]
    fn images_are_as_large_as_the_row_says() {
        let mut networks = Networks::default();
        let config = br#"{"model_type": "resnet", "layer_type": "bottleneck", "depths": [3, 4, 6, 3]}"#;
        networks.add("mine", NetworkSource::File(config.to_vec()));
        let check = |size: &str, expected: Result<[u64; 3], &str>| {
            let row = MeasuredRow { model: "mine".to_owned(), size: size.to_owned(), ..MeasuredRow::default() };
            let own = networks.graph("mine", &SampleShape::default()).expect("a network");
            let read = sized(own, &row, &networks).map(|graph| image(&graph).expect("images"));
            assert_eq!(read.map_err(|why| why.reason()), expected.map_err(str::to_owned), "{size}");
        };
        check("", Ok([3, 224, 224]));
        check("224", Ok([3, 224, 224]));
        check("448", Ok([3, 448, 448]));
        check("600x800", Ok([3, 600, 800]));
        check("3 x 64 x 96", Ok([3, 64, 96]));
        check("crops", Err("its samples of `crops` are of no known size"));
        check("0", Err("its samples of `0` are of no known size"));
    }
}
