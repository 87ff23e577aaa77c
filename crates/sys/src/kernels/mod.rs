//! Timed kernels: loops whose instructions matter, in assembly, one file per architecture with the same list.
//!
//! Each takes the number of iterations, so that the caller times a batch. Loop control overlaps with the work and is
//! hidden on every core that can execute two instructions per cycle, unless the kernel says otherwise.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
use aarch64 as arch;
pub mod bandwidth;
#[cfg(target_arch = "aarch64")]
mod calls_aarch64;
#[cfg(target_arch = "aarch64")]
use calls_aarch64 as calls_arch;
#[cfg(target_arch = "x86_64")]
mod calls_x86_64;
#[cfg(target_arch = "x86_64")]
use calls_x86_64 as calls_arch;
mod loops;
mod procedure;
#[cfg(target_arch = "x86_64")]
mod x86_64;
mod xor;
#[cfg(target_arch = "x86_64")]
use x86_64 as arch;

pub use arch::{
    COUNTER_CLOCK_SOURCES, COUNTER_START_TEXT, COUNTER_STOP_TEXT, counter_start, counter_stop, counter_unusable,
    null_system_calls,
};
#[cfg(test)]
use calls_arch::emitted;
pub(crate) use calls_arch::{system_call, system_calls};
pub(crate) use loops::chase;
pub use loops::{Outcomes, branches, chain_add, chain_load, chain_multiply, counted_loop, independent_adds};
pub use procedure::{Calls, MOST_ARGUMENTS, Via};
pub use xor::xor;

/// Adds in one iteration of [`chain_add`], multiplies of [`chain_multiply`], loads of [`chain_load`].
pub const CHAIN: u64 = 64;

/// Adds in one iteration of [`independent_adds`].
pub const BLOCK: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_null_call_is_a_call() {
        assert_eq!(null_system_calls(3), i64::from(std::os::unix::process::parent_id()));
    }

    #[test]
    fn the_counter_moves_forward() {
        let first = counter_start();
        let second = counter_stop();
        assert!(second > first);
    }

    #[test]
    fn branches_go_where_the_generator_says() {
        let mut number = 12_345u64;
        let mut positive = 0;
        for _ in 0..1000 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            positive += u64::from(number >> 63 == 0);
        }
        let mut outcomes = Outcomes::random(12_345);
        let counted = branches(&mut outcomes, 400) + branches(&mut outcomes, 600);
        assert!(counted == positive && (450..550).contains(&counted), "{counted} of {positive}");
        assert_eq!((branches(&mut { Outcomes::NEVER }, 1000), branches(&mut { Outcomes::ALWAYS }, 1000)), (1000, 0));
    }

    /// More instructions per nanosecond than any core executes: sixteen per cycle, at ten gigahertz.
    const IMPOSSIBLE: u64 = 160;

    #[test]
    fn kernels_do_all_of_their_work() {
        for (kernel, iterations) in [
            (chain_add as fn(u64), 200_000),
            (chain_multiply, 200_000),
            (chain_load, 200_000),
            (independent_adds, 200_000),
            (counted_loop, 200_000 * CHAIN),
        ] {
            let begun = crate::clock::monotonic();
            kernel(iterations);
            let taken = crate::clock::monotonic() - begun;
            let instructions = if iterations > 200_000 { iterations } else { iterations * CHAIN };
            assert!(taken > instructions / IMPOSSIBLE, "{instructions} instructions in {taken} ns");
        }
    }
}
