//! Shared by the process probes: the programs that they start, and the loop.

use crate::reasons::{OrReason, ProbeResult};
use kelvin_core::Metric;
use kelvin_harness::Bench;
use kelvin_sys::fork_image::{self, ForkCopy, SmallImage};
use kelvin_sys::process::{Child, SpawnProgram};

/// Possible paths of the distribution's `true`.
pub(crate) const TRUE_PROGRAMS: [SpawnProgram; 2] =
    [SpawnProgram::new(c"/bin/true", [None, None]), SpawnProgram::new(c"/usr/bin/true", [None, None])];

/// The shell with the command `true`.
pub(crate) const SHELL_TRUE_PROGRAMS: [SpawnProgram; 2] = [
    SpawnProgram::new(c"/bin/sh", [Some(c"-c"), Some(c"/bin/true")]),
    SpawnProgram::new(c"/bin/sh", [Some(c"-c"), Some(c"/usr/bin/true")]),
];

/// The path of `true` on this machine, as an index into [`TRUE_PROGRAMS`] and [`SHELL_TRUE_PROGRAMS`].
pub(crate) fn true_program_index() -> ProbeResult<usize> {
    TRUE_PROGRAMS
        .iter()
        .position(SpawnProgram::is_executable)
        .or_skip("needs /bin/true or /usr/bin/true, and there is neither")
}

/// Times processes one by one: from before the child is created until it is reaped; it must have succeeded.
pub(crate) fn time_lifetimes(
    bench: &mut Bench<'_>,
    metric: &Metric,
    mut start_child: impl FnMut() -> kelvin_sys::Result<Child>,
) -> ProbeResult {
    bench.time_each([metric], |clock| {
        let start = clock.start();
        start_child()?.wait_for_success()?;
        Ok([clock.stop().wrapping_sub(start)])
    })
}

/// Like `time_lifetimes`, from a process whose forkable image is that of a small C program.
pub(crate) fn time_lifetimes_from_small_image(
    bench: &mut Bench<'_>,
    metric: &Metric,
    start_child: impl FnMut() -> kelvin_sys::Result<Child>,
) -> ProbeResult {
    let _image = shrink_fork_image(bench)?;
    time_lifetimes(bench, metric, start_child)
}

/// Shrinks the image that fork copies until the result is dropped, and notes what is left. A multi-threaded process, as
/// where kelvin is embedded, stays as it is, and the note reports it.
pub(crate) fn shrink_fork_image(bench: &mut Bench<'_>) -> ProbeResult<Option<SmallImage>> {
    let threads = fork_image::thread_count()?;
    let image = if threads == 1 { Some(SmallImage::enter()?) } else { None };
    bench.note(describe_image(fork_image::fork_copy()?));
    if image.is_none() {
        bench.note(format!("degraded: with {threads} threads in the process its image cannot be shrunk"));
    }
    Ok(image)
}

/// The image that a fork copies, in words.
fn describe_image(copy: ForkCopy) -> String {
    let kibibytes = copy.resident >> 10;
    format!("each fork copies {} mappings and the page-table entries of {kibibytes} KiB", copy.mappings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_lists_have_same_order() {
        assert_eq!(TRUE_PROGRAMS.len(), SHELL_TRUE_PROGRAMS.len());
        let copy = ForkCopy { mappings: 22, resident: 300 << 10 };
        assert_eq!(describe_image(copy), "each fork copies 22 mappings and the page-table entries of 300 KiB");
    }
}
