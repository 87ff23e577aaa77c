//! Figures that are possible, but hardly believable: what is odd about them, and its likely cause.

use kelvin_core::Unit;
use kelvin_core::units::{number, value_text};

use crate::sanity::SanityRule;

/// That a law is broken: the work that should be the slower one, with its figure, is so many times as fast as the other.
pub(crate) fn violation_text(law: SanityRule, [faster, slower]: [(f64, Unit); 2], times: f64) -> String {
    let RuleWords { slower: what, faster: than, cause } = rule_words(law);
    let [fast, slow] = [faster, slower].map(|(value, unit)| value_text(value, unit));
    format!("{what} ({slow}) is {} times as fast as {than} ({fast}): {cause}", number(times))
}

/// The words of a law.
struct RuleWords {
    /// What should be the slower one.
    slower: &'static str,
    /// What it is held against.
    faster: &'static str,
    /// What mostly makes it look faster.
    cause: &'static str,
}

fn rule_words(law: SanityRule) -> RuleWords {
    let of = |slower, faster, cause| RuleWords { slower, faster, cause };
    match law {
        SanityRule::Order => of(
            "a random read",
            "one in order",
            "a cache below the kernel probably held what was read at random, or something else used the disk during the pass in \
             order",
        ),
        SanityRule::Cached => of(
            "a read of a file that is not in memory",
            "one of a file that is",
            "the file was probably in memory after all, or memory was reclaimed while the other one was read",
        ),
        SanityRule::InFlight => of(
            "a request alone",
            "one of many in flight",
            "a limit on requests per second probably holds the many back, or a cache below the kernel answered the one",
        ),
        SanityRule::Flushed => of(
            "a write that is flushed",
            "one that is not",
            "the device, or the host behind it, probably acknowledges a flush without doing it",
        ),
        SanityRule::PageSize => of(
            "a load from base pages",
            "one from huge pages",
            "the huge pages were probably not obtained, or the core was shared or slower meanwhile",
        ),
        SanityRule::Cpus => of(
            "one CPU reading memory",
            "all CPUs together",
            "a CPU quota, or other work on the other CPUs, probably held all of them back",
        ),
        SanityRule::LoadedMemory => of(
            "a load while other CPUs stream",
            "one while they are idle",
            "the other CPUs probably did not stream, or the core ran faster meanwhile",
        ),
        SanityRule::FreshMemory => of(
            "the first touch of fresh memory",
            "one of memory just given back",
            "giving memory back probably made the kernel or the host work that the second touch paid for",
        ),
        SanityRule::MajorFault => of(
            "a fault of a page on the disk",
            "one of a page in memory",
            "the page was probably read ahead, so that no fault waited for the disk",
        ),
        SanityRule::CallThatWorks => of(
            "a call that moves a byte",
            "a call that does nothing",
            "the one that does nothing was probably disturbed, or filtered by seccomp or audit",
        ),
        SanityRule::Path => of(
            "the status of a file by its path",
            "that of an open file",
            "the call on the open file was probably disturbed",
        ),
        SanityRule::Open => {
            of("opening and closing a file", "looking up its status", "the look-up was probably disturbed")
        }
        SanityRule::Thread => of(
            "a fork",
            "creating a thread",
            "creating threads was probably disturbed, or the C library maps and unmaps their stacks each time",
        ),
        SanityRule::Exec => {
            of("fork and exec", "fork alone", "the child that executes nothing was probably disturbed while it ended")
        }
        SanityRule::Shell => of(
            "a shell that runs a program",
            "the program alone",
            "the shell probably replaces itself by the program, which was disturbed when it ran alone",
        ),
        SanityRule::RoundTrip => of(
            "a round trip over a pipe",
            "one switch of its two",
            "the two ends were probably on two CPUs, so that nothing was switched",
        ),
    }
}
