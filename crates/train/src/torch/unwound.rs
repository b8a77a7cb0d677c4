//! Errors that the bindings panic with. Where a call fails that was given a number, tch 0.24 drops that number before it reads
//! the error, and the drop panics with it: so does `f_mul_scalar` when memory runs out.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::{Error, Result};

/// What comes before the error in such a panic: `Result::unwrap` on a `TchError`.
const UNWRAPPED: &str = "called `Result::unwrap()` on an `Err` value: Torch(";

/// The result of `work`, also where it panics with an error of libtorch; any other panic goes on.
///
/// # Errors
/// Those of `work`, and of libtorch.
pub fn unwound<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().and_then(|text| text.strip_prefix(UNWRAPPED));
        match text {
            Some(text) => Err(Error::from_text(&first_line(text))),
            None => resume_unwind(panic),
        }
    })
}

/// The first line of a string as `Debug` writes it, in quotes and a bracket.
fn first_line(text: &str) -> String {
    let text = text.strip_prefix('"').unwrap_or(text);
    let line = text.split("\\n").next().unwrap_or(text);
    line.strip_suffix("\")").unwrap_or(line).replace("\\\"", "\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_the_bindings_panic_with_is_an_error() {
        let fails = |text: &'static str| {
            move || -> Result<()> {
                let read = |text: &str| std::result::Result::<(), _>::Err(tch::TchError::Torch(text.into()));
                read(text).unwrap();
                Ok(())
            }
        };
        assert_eq!(unwound(fails("no \"memory\"\nat x")).unwrap_err().to_string(), "no \"memory\"");
        assert_eq!(unwound(fails("none")).unwrap_err().to_string(), "none");
        assert_eq!(unwound(|| Ok(3)).unwrap(), 3);
        let other = catch_unwind(|| unwound(|| -> Result<()> { panic!("of another kind") }));
        assert_eq!(other.unwrap_err().downcast_ref::<&str>(), Some(&"of another kind"));
    }
}
