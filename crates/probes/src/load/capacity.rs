//! What each resource of a server gives alone, for the requests that users will make.
//!
//! It shows what to expect before the first visit. It must not be taken for the resource's best at other work.

use kelvin_core::catalogue::load::{CAPACITY_METRICS, Resource};

use super::users::base_case;
use crate::prelude::*;

pub(super) static PROBE: Probe = Probe {
    summary: "A file server under load: what each of its resources gives alone",
    method: include_str!("capacity.md"),
    cases: |_, _| vec![base_case()].words(&[Resource::ServerCpu, Resource::ClientCpu, Resource::Generator]),
    run: super::refuse_single_round,
    predict: |_, _, _| {
        Err(NoPrediction::new(
            "it is measured as users will meet it, and is itself what predictions of the study rest on",
        ))
    },
    ..Probe::study(CAPACITY_METRICS)
};
