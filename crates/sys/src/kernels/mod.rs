//! Timed kernels: loops whose instructions matter, in assembly, one file per architecture with the same list.
//!
//! Each takes the number of iterations, so that the caller times a batch. Loop control overlaps with the work and is
//! hidden on every core that can execute two instructions per cycle, unless the kernel states otherwise.

#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
mod arch;
pub mod bandwidth;
#[cfg_attr(target_arch = "aarch64", path = "calls_aarch64.rs")]
#[cfg_attr(target_arch = "x86_64", path = "calls_x86_64.rs")]
mod calls_arch;
mod loops;
mod procedure_calls;
mod xor;

pub use arch::{
    COUNTER_CLOCK_SOURCES, COUNTER_START_TEXT, COUNTER_STOP_TEXT, counter_start, counter_stop, counter_unusable,
};

#[cfg(test)]
use calls_arch::emitted;
pub(crate) use calls_arch::{system_call, system_calls};
pub(crate) use loops::chase;
pub use loops::{BranchOutcomes, branches, chain_add, chain_load, chain_multiply, counted_loop, independent_adds};
#[cfg(test)]
use loops::{chain_add_result, chain_multiply_result, independent_adds_results};
pub use procedure_calls::{CallLoop, CallPath, MAX_ARGUMENTS};
pub use xor::xor;

/// Adds in one iteration of [`chain_add`], multiplies of [`chain_multiply`], loads of [`chain_load`].
pub const CHAIN_LENGTH: u64 = 64;

/// Adds in one iteration of [`independent_adds`].
pub const BLOCK_LENGTH: u64 = 64;

/// `iterations` raw `getppid` system calls; the value of the last one.
#[inline(always)]
pub fn null_system_calls(iterations: u64) -> i64 {
    // SAFETY: getppid takes no arguments and cannot fail.
    unsafe { system_calls(libc::SYS_getppid, iterations) as i64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_call_enters_kernel() {
        assert_eq!(null_system_calls(3), i64::from(std::os::unix::process::parent_id()));
    }

    #[test]
    fn counter_is_monotonic() {
        let first = counter_start();
        assert!(counter_stop() >= first);
        // The counter of many Arm processors advances only every 40 ns.
        assert!((0..100_000).any(|_| counter_stop() > first));
    }

    #[test]
    fn branches_follow_generator() {
        let mut number = 12_345u64;
        let mut positive = 0;
        for _ in 0..1000 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            positive += u64::from(number >> 63 == 0);
        }
        let mut outcomes = BranchOutcomes::random(12_345);
        let taken_count = branches(&mut outcomes, 400) + branches(&mut outcomes, 600);
        assert!(taken_count == positive && (450..550).contains(&taken_count), "{taken_count} of {positive}");
        assert_eq!(
            (branches(&mut { BranchOutcomes::NEVER }, 1000), branches(&mut { BranchOutcomes::ALWAYS }, 1000)),
            (1000, 0)
        );
    }

    /// Instructions that a process executes to run a kernel for this many iterations, by stepping through it; `None` where that is not allowed.
    fn executed(kernel: fn(u64), iterations: u64) -> Option<u64> {
        // SAFETY: the child calls nothing but the kernel and what is safe after a fork in a process with threads: ptrace, raise and _exit.
        let child = unsafe {
            let pid = libc::fork();
            if pid == 0 {
                if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0 {
                    libc::_exit(1);
                }
                libc::raise(libc::SIGSTOP);
                kernel(iterations);
                libc::_exit(0);
            }
            pid
        };
        assert!(child > 0, "fork: {}", std::io::Error::last_os_error());
        let wait = || {
            let mut status = 0;
            // SAFETY: `status` is an integer, and the child is ours.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            status
        };
        let mut steps = 0;
        let mut status = wait();
        while libc::WIFSTOPPED(status) {
            steps += 1;
            // SAFETY: the child is stopped, and traced by this thread.
            let stepped = unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, child, 0, 0) };
            assert_eq!(stepped, 0, "{}", std::io::Error::last_os_error());
            status = wait();
        }
        assert!(libc::WIFEXITED(status), "{status}");
        (libc::WEXITSTATUS(status) == 0).then_some(steps)
    }

    #[test]
    fn kernels_execute_stated_instructions() {
        // The loop control of an iteration: decrement and branch.
        const LOOP_CONTROL: u64 = 2;
        for (name, kernel, instructions) in [
            ("chain_add", chain_add as fn(u64), CHAIN_LENGTH + LOOP_CONTROL),
            ("chain_multiply", chain_multiply, CHAIN_LENGTH + LOOP_CONTROL),
            ("chain_load", chain_load, CHAIN_LENGTH + LOOP_CONTROL),
            ("independent_adds", independent_adds, BLOCK_LENGTH + LOOP_CONTROL),
            ("counted_loop", counted_loop, LOOP_CONTROL),
        ] {
            // Of a call with more iterations nothing else is different.
            let [single, four] = [1, 4].map(|iterations| executed(kernel, iterations));
            let Some((single, four)) = single.zip(four) else {
                let requirement = kelvin_testing::MissingRequirement::privilege("a child cannot be traced");
                return requirement.report_skip("counting the instructions of the kernels");
            };
            assert_eq!(
                four - single,
                3 * instructions,
                "{name}: {single} instructions for one iteration, {four} for four"
            );
        }
    }

    #[test]
    fn chain_results_are_correct() {
        for iterations in [1, 2, 1000] {
            assert_eq!(chain_add_result(iterations), CHAIN_LENGTH * iterations, "{iterations}");
            let product = (0..CHAIN_LENGTH * iterations).fold(3u64, |product, _| product.wrapping_mul(3));
            assert_eq!(chain_multiply_result(iterations), product, "{iterations}");
            assert_eq!(independent_adds_results(iterations), [BLOCK_LENGTH / 8 * iterations; 8], "{iterations}");
        }
    }
}
