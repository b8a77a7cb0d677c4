//! Several ranks as real processes on this machine, held against one alone.

mod by_hand;
mod changed;
mod elastic;
mod finite;
mod parts;
mod same;
mod scene;
mod sharded;
mod tensor;
