//! Proof that bytes came from a device, or reached it: its own counters.

use kelvin_core::units;
use kelvin_file::Target;
use kelvin_file::device::{Device, DeviceTraffic};

use crate::reasons::{ProbeResult, skip_if};

/// Least share of a measure's bytes that the device must count: less means that a cache took part.
const MIN_DEVICE_SHARE: f64 = 0.95;

/// The counters of the device below a file, from which a later reading is counted.
pub(super) struct DeviceCounters(Result<(Device, DeviceTraffic), String>);

impl DeviceCounters {
    /// Reads them now.
    pub(super) fn now(target: &Target) -> Self {
        let device_reading = Device::of_file(target).and_then(|device| {
            let traffic = device.traffic().map_err(|error| error.to_string())?;
            Ok((device, traffic))
        });
        Self(device_reading)
    }

    /// Bytes that the device has written since the first reading; the reason where that is not known.
    pub(super) fn written(&self) -> Result<u64, String> {
        let (device, before) = self.0.as_ref().map_err(String::clone)?;
        Ok(device.traffic().map_err(|error| error.to_string())?.since(*before).written)
    }

    /// What the device counts of this many bytes read since the first reading, in words.
    ///
    /// # Errors
    /// That they cannot have come from it.
    pub(super) fn prove_read(&self, bytes: u64) -> ProbeResult<String> {
        self.prove(bytes, "read", |traffic| traffic.read)
    }

    /// Like `prove_read`, of bytes that were written.
    ///
    /// # Errors
    /// That they cannot have reached it.
    pub(super) fn prove_written(&self, bytes: u64) -> ProbeResult<String> {
        self.prove(bytes, "written", |traffic| traffic.written)
    }

    fn prove(&self, bytes: u64, operation: &str, select: impl Fn(DeviceTraffic) -> u64) -> ProbeResult<String> {
        let (device, before) = match &self.0 {
            Ok(device_reading) => device_reading,
            Err(reason) => return Ok(format!("no device counters show where the bytes were {operation}: {reason}")),
        };
        judge_device_share(&device.name, select(device.traffic()?.since(*before)), bytes, operation)
    }
}

/// What a device's count shows of this many bytes.
fn judge_device_share(device: &str, counted_bytes: u64, bytes: u64, operation: &str) -> ProbeResult<String> {
    let share = counted_bytes as f64 / bytes.max(1) as f64;
    let [counted_text, bytes] = [counted_bytes, bytes].map(units::bytes);
    let reason = format!(
        "needs a file system that goes to its device: {device} counts {counted_text} of the {bytes} that were {operation}; \
             choose another directory by --dir"
    );
    skip_if(share < MIN_DEVICE_SHARE, reason)?;
    Ok(format!("{device} counts {share:.2} times the {bytes} that were {operation} (others may use it as well)"))
}

#[cfg(test)]
mod tests {
    use kelvin_harness::ProbeError;

    use super::*;

    #[test]
    fn uncounted_bytes_fail_proof() {
        let proof = |bytes| judge_device_share("vda", bytes, 1000, "read");
        assert!(proof(1000).unwrap().starts_with("vda counts 1.00 times the 1000 B that were read"));
        assert!(proof(1500).is_ok() && proof(950).is_ok());
        assert!(
            matches!(proof(400), Err(ProbeError::Skip(reason)) if reason.0.contains("vda counts 400 B of the 1000 B"))
        );
    }

    #[test]
    fn missing_counters_are_noted() {
        let counters = DeviceCounters(Err("its file system is on host:/dir, which is no block device".into()));
        assert!(counters.prove_written(5).unwrap().ends_with("host:/dir, which is no block device"));
    }
}
