//! Networks over images: convolutional ones ([`resnet`], [`regnet`], [`convnext`], [`mobilenet`], [`efficientnet`],
//! [`yolo`]), transformers over patches ([`vit`], [`swin`], [`segformer`]), and both in one ([`mobilevit`], [`detr`]).

pub mod convnext;
pub mod detr;
pub mod efficientnet;
pub mod mobilenet;
pub mod mobilevit;
pub mod regnet;
pub mod resnet;
pub mod segformer;
pub mod swin;
pub mod vit;
pub mod yolo;

pub use convnext::Convnext;
pub use detr::Detr;
pub use efficientnet::Efficientnet;
pub use mobilenet::Mobilenet;
pub use mobilevit::Mobilevit;
pub use regnet::Regnet;
pub use resnet::Resnet;
pub use segformer::Segformer;
pub use swin::Swin;
pub use vit::Vit;
pub use yolo::Yolo;
