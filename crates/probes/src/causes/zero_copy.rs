//! Zero copy that copies: pages are pinned and completions reported for bytes that the kernel copies after all.

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use kelvin_core::SkipReason;
use kelvin_core::catalogue::net::{BANDWIDTH_TCP_METHOD, SendMethod};
use kelvin_sys::net::connect_local_pair;
use kelvin_sys::net::socket_send::{ZeroCopyCompletions, send_without_copy, set_zero_copy, take_completions};
use kelvin_sys::thread_spawn::ThreadBuilder;

use super::cause::{AffectedMetrics, Cause, CauseContext, Mechanism, RoundConditions, at_word, small_datagram};
use crate::reasons::{OrReason, refuse_if};

pub(crate) static CAUSE: Cause = Cause {
    affected: AffectedMetrics::Listed(&[at_word(&[&BANDWIDTH_TCP_METHOD], SendMethod::ZeroCopy.point())]),
    mechanisms: &[Mechanism::without("send", "with send", apply)],
    negative_control: small_datagram,
    ..Cause::new("zero_copy", "zero copy that copies", include_str!("zero_copy.md"))
};

/// Bytes of the trial: a message of more pages than a call copies by itself.
const TRIAL_BYTES: usize = 64 << 10;
/// By this time a message that its receiver has read is completed, or it never is.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(2);

fn apply(_: &CauseContext<'_>, conditions: &mut RoundConditions) -> Result<(), SkipReason> {
    let trial = conditions
        .keep_for_experiment(CAUSE.id, || try_zero_copy().or_refuse("cannot see whether zero copy copies here"))?;
    let ZeroCopyCompletions { calls, copied } = *trial;
    refuse_if(copied < calls, format!("of {calls} zero-copy calls the kernel marked {copied} as copied"))?;
    conditions.replace_word(SendMethod::Send);
    Ok(())
}

/// What the kernel reports of a message over loopback, which the figure's are too.
fn try_zero_copy() -> std::io::Result<ZeroCopyCompletions> {
    let (sender, mut receiver) = connect_local_pair(&TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?, |_| Ok(()))?;
    set_zero_copy(&sender)?;
    let message = vec![1; TRIAL_BYTES];
    let reader = ThreadBuilder::named("reader")
        .start(move || receiver.read_exact(&mut vec![0; TRIAL_BYTES]).map(|()| receiver))?;
    let calls = send_without_copy(&sender, &message)?;
    let _open = reader.join().map_err(|_| std::io::Error::other("its reader is gone"))??;
    let (mut completions, start) = (ZeroCopyCompletions::default(), Instant::now());
    while completions.calls < calls {
        if start.elapsed() > COMPLETION_TIMEOUT {
            return Err(std::io::Error::other(format!("{} of {calls} calls were completed", completions.calls)));
        }
        let batch = take_completions(&sender)?;
        completions =
            ZeroCopyCompletions { calls: completions.calls + batch.calls, copied: completions.copied + batch.copied };
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(completions)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Documentation/networking/msg_zerocopy.rst, "Loopback": data sent to a local socket is copied.
    #[test]
    fn loopback_copies_every_call() {
        let completions = try_zero_copy().unwrap();
        assert!(completions.calls > 0 && completions.copied == completions.calls, "{completions:?}");
    }
}
