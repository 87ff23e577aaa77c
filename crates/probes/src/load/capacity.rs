//! What each resource of a server gives alone, for the requests that users will make.
//!
//! It shows what to expect before the first visit. It must not be taken for the resource's best at other work.

use kelvin_core::catalogue::load::{CAPACITY_METRICS, Resource};

use super::users::base_case;
use crate::prelude::*;

pub(super) static PROBE: Probe = Probe {
    summary: "A file server under load: what each of its resources gives alone",
    method: Method {
        how: "Three rounds of a second or more, before the first visit. Disk: a process in the server's control groups reads whole files \
              in random order, eight at a time, each dropped from the page cache before, and then 4 KiB at a time past the page cache: what it serves in requests, \
              however little each asks for. Link: four users ask for files in \
              memory, in the order of the study where all of them are there, else for one; what arrives is the link's capacity \
              where it comes near the rate of the server's interface: its device's, or that to which it is shaped. Where it stays \
              below, that rate is the capacity, less the headers; a virtual interface without one has no capacity but the CPUs'. CPUs: the CPU time of a request in that \
              stream, over the time of the CPUs that the server, or the client, may use; the generator has one.",
        prediction: "None: these are measured at the state in which users meet them. `kelvin run` measures and predicts disk, network \
                     and processor by themselves.",
        not_for: "The best that a resource can do at other work: a disk is read by whole files, a processor serves files of this size.",
        pitfalls: &[
            "A link's capacity taken from a stream that something else limited, as an end whose CPU quota cannot be seen.",
            "A disk read from outside the server's control group, whose limits it would miss.",
            "The CPU time of a single file's requests where the study asks for many: its bytes come from the processor's caches, theirs \
             from memory. On one machine a request of 2 MB took 0.34 ms of the server's CPU instead of 0.57 ms.",
            "The CPU time of a single user's requests: each then wakes both ends anew, and costs more than among many.",
        ],
        sources: &[
            "E. D. Lazowska et al., Quantitative System Performance, Prentice-Hall 1984, chapter 12: service demands",
        ],
    },
    cases: |_, _| vec![base_case()].words(&[Resource::ServerCpu, Resource::ClientCpu, Resource::Generator]),
    run: super::refuse_single_round,
    predict: |_, _, _| {
        Err(NoPrediction::new(
            "it is measured as users will meet it, and is itself what predictions of the study rest on",
        ))
    },
    ..Probe::study(CAPACITY_METRICS)
};
