//! Proof that bytes came from a device, or reached it: its own counters.

use kelvin_file::Target;
use kelvin_file::device::{Device, Moved};
use kelvin_harness::Stop;
use kelvin_model::units;

/// Least share of a measure's bytes that the device must count: less means that a cache took part.
const LEAST_SHARE: f64 = 0.95;

/// The counters of the device below a file, from which a later reading is counted.
#[derive(Debug)]
pub(super) struct Counters(Result<(Device, Moved), String>);

impl Counters {
    /// Reads them now.
    pub(super) fn look(target: &Target) -> Self {
        let looked = Device::below(target).and_then(|device| {
            let moved = device.moved().map_err(|error| error.to_string())?;
            Ok((device, moved))
        });
        Self(looked)
    }

    /// What the device counts of so many bytes read since the first reading, in words.
    ///
    /// # Errors
    /// That they cannot have come from it.
    pub(super) fn have_read(&self, bytes: u64) -> Result<String, Stop> {
        self.prove(bytes, "read", |moved| moved.read)
    }

    /// The same of bytes that were written.
    ///
    /// # Errors
    /// That they cannot have reached it.
    pub(super) fn have_written(&self, bytes: u64) -> Result<String, Stop> {
        self.prove(bytes, "written", |moved| moved.written)
    }

    fn prove(&self, bytes: u64, done: &str, of: impl Fn(Moved) -> u64) -> Result<String, Stop> {
        let (device, before) = match &self.0 {
            Ok(looked) => looked,
            Err(reason) => return Ok(format!("no device counters show where the bytes were {done}: {reason}")),
        };
        judge(&device.name, of(device.moved()?.since(*before)), bytes, done)
    }
}

/// What a device's count says of so many bytes.
fn judge(device: &str, counted: u64, bytes: u64, done: &str) -> Result<String, Stop> {
    let share = counted as f64 / bytes.max(1) as f64;
    let [counted, bytes] = [counted, bytes].map(units::bytes);
    if share < LEAST_SHARE {
        return Err(Stop::skip(format!(
            "needs a file system that goes to its device: {device} counts {counted} of the {bytes} that were {done}; \
             choose another directory by --dir"
        )));
    }
    Ok(format!("{device} counts {share:.2} times the {bytes} that were {done} (others may use it as well)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_the_device_does_not_count_came_from_elsewhere() {
        let says = |counted| judge("vda", counted, 1000, "read");
        assert!(says(1000).unwrap().starts_with("vda counts 1.00 times the 1000 B that were read"));
        assert!(says(1500).is_ok() && says(950).is_ok());
        assert!(matches!(says(400), Err(Stop::Skip(reason)) if reason.0.contains("vda counts 400 B of the 1000 B")));
    }

    #[test]
    fn no_counters_is_said_and_no_error() {
        let counters = Counters(Err("its file system is on host:/dir, which is no block device".into()));
        assert!(counters.have_written(5).unwrap().ends_with("host:/dir, which is no block device"));
    }
}
