//! Assertions on internal invariants: one cold path that names what broke.

/// Asserts an internal invariant, in builds with debug assertions.
///
/// Misuse by a caller is never asserted, it is an error; this is for what only a fault in cpkv itself can break.
#[macro_export]
macro_rules! strict_assert {
    ($cond:expr, $($what:tt)+) => {
        if cfg!(debug_assertions) && !$cond {
            $crate::__broken_invariant(format_args!($($what)+))
        }
    };
}

#[doc(hidden)]
#[cold]
#[track_caller]
pub fn __broken_invariant(what: std::fmt::Arguments<'_>) -> ! {
    panic!("broken invariant: {what}")
}
