//! Random numbers: splitmix64, for numbers that only must not repeat in one process, and the kernel's.

use crate::{Error, Result};

/// Increment of the state per number: the generator is a counter, and can start anywhere.
pub const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// The next number (Steele, Lea, Flood 2014).
#[inline]
pub fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(GOLDEN_GAMMA);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A number of the kernel's generator, which no other process has.
///
/// # Errors
/// Those of getrandom(2).
pub fn kernel_random() -> Result<u64> {
    let mut bytes = [0; 8];
    // SAFETY: the kernel fills the bytes that it gets. So few it gives at once and whole.
    let length = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if length == bytes.len() as isize { Ok(u64::from_ne_bytes(bytes)) } else { Err(Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_numbers_differ() {
        assert_ne!(kernel_random().unwrap(), kernel_random().unwrap());
    }
}
