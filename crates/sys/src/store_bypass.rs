//! Speculative store bypass: whether loads of a thread may run before earlier stores whose addresses are not known yet, and who decides that.
//!
//! Source: Documentation/userspace-api/spec_ctrl.rst.

use rustix::process::{
    SpeculationFeature, SpeculationFeatureControl, SpeculationFeatureState, control_speculative_feature,
    speculative_feature_state,
};

use crate::{Error, Result};

const FEATURE: SpeculationFeature = SpeculationFeature::SpeculativeStoreBypass;

/// Whether loads may bypass stores in a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreBypass {
    /// The processor needs no mitigation, and the kernel offers none.
    NotVulnerable,
    /// They may.
    Allowed,
    /// They may not, until the thread allows it again.
    Disabled,
    /// They may not, until the thread executes another program.
    DisabledUntilExec,
    /// They may not for as long as the thread and its descendants last.
    ForceDisabled,
    /// They may not in any thread of the system.
    DisabledBySystem,
}

impl StoreBypass {
    /// That of the calling thread, which its descendants inherit.
    ///
    /// # Errors
    /// Those of prctl: EINVAL or ENODEV for a kernel that knows nothing of it.
    pub fn of_thread() -> Result<Self> {
        let state = speculative_feature_state(FEATURE)?;
        state.and_then(Self::from_state).ok_or_else(|| Error::other("the kernel gives a state that is not documented"))
    }

    fn from_state(state: SpeculationFeatureState) -> Option<Self> {
        type State = SpeculationFeatureState;
        let is_per_thread = state.contains(State::PRCTL);
        match state - State::PRCTL {
            rest if rest.is_empty() && !is_per_thread => Some(Self::NotVulnerable),
            State::ENABLE => Some(Self::Allowed),
            State::DISABLE if is_per_thread => Some(Self::Disabled),
            State::DISABLE => Some(Self::DisabledBySystem),
            State::FORCE_DISABLE => Some(Self::ForceDisabled),
            State::DISABLE_NOEXEC => Some(Self::DisabledUntilExec),
            _ => None,
        }
    }
}

/// Lets loads of the calling thread bypass stores, and those of threads and processes that it starts from now on.
///
/// # Errors
/// Those of prctl: EPERM once it was disabled by force, ENXIO where the system decides.
pub fn allow() -> Result<()> {
    Ok(control_speculative_feature(FEATURE, SpeculationFeatureControl::ENABLE)?)
}

/// Lets them no longer bypass stores; by force this cannot be undone, so call it in a separate thread.
///
/// # Errors
/// Those of prctl: ENXIO where the system decides, EPERM where it was disabled by force already.
pub fn disable(by_force: bool) -> Result<()> {
    let control = if by_force { SpeculationFeatureControl::FORCE_DISABLE } else { SpeculationFeatureControl::DISABLE };
    Ok(control_speculative_feature(FEATURE, control)?)
}

#[cfg(test)]
mod tests {
    use kelvin_testing::MissingRequirement;

    use super::*;

    #[test]
    fn documented_states_are_known() {
        let of_bits = |bits| StoreBypass::from_state(SpeculationFeatureState::from_bits(bits).unwrap());
        let known = [0, 2, 3, 4, 5, 9, 17].map(of_bits);
        let [none, enable, per_thread, disable, disabled, forced, until_exec] = known.map(Option::unwrap);
        assert_eq!(none, StoreBypass::NotVulnerable);
        assert_eq!([enable, per_thread], [StoreBypass::Allowed; 2]);
        assert_eq!([disable, disabled], [StoreBypass::DisabledBySystem, StoreBypass::Disabled]);
        assert_eq!([forced, until_exec], [StoreBypass::ForceDisabled, StoreBypass::DisabledUntilExec]);
        assert_eq!([1, 6, 7].map(of_bits), [None; 3]);
    }

    #[test]
    fn thread_changes_its_own_until_forced() {
        if let Err(error) = allow() {
            return MissingRequirement::machine(format!("a thread cannot choose whether loads bypass stores: {error}"))
                .report_skip("the mitigation of speculative store bypass");
        }
        // Arm kernels that were told to use no mitigations refuse it.
        if let Err(error) = std::thread::spawn(|| disable(false)).join().unwrap() {
            return MissingRequirement::machine(format!("the kernel always lets loads bypass stores: {error}"))
                .report_skip("the mitigation of speculative store bypass");
        }
        let forced = std::thread::spawn(|| {
            disable(false).unwrap();
            let disabled = StoreBypass::of_thread().unwrap();
            allow().unwrap();
            let allowed = StoreBypass::of_thread().unwrap();
            disable(true).unwrap();
            assert_eq!(allow().unwrap_err().raw_os_error(), Some(libc::EPERM));
            [disabled, allowed, StoreBypass::of_thread().unwrap()]
        });
        let expected = [StoreBypass::Disabled, StoreBypass::Allowed, StoreBypass::ForceDisabled];
        assert_eq!(forced.join().unwrap(), expected);
        assert_eq!(StoreBypass::of_thread().unwrap(), StoreBypass::Allowed, "no other thread has it");
    }
}
