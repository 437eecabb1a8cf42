//! What the scene says about the place.
use std::path::PathBuf;

use crate::actor;
use crate::output::error::Error;
use crate::plan::event::Trigger;
use crate::settings::config::{Config, Manner, SignalUse};
use crate::sys::startup::Inherited;
use crate::sys::startup::Standing;

#[derive(Debug)]
pub struct Place {
    pub job_control: bool,
    pub standing: Standing,
    pub manager_has_deadline: bool,
    pub hup: SignalUse,
    pub manager: Option<i32>,
    pub stdin: Option<Trigger>,
    pub directory: PathBuf,
    pub strangers: Vec<i32>,
    pub dies_as_server: bool,
    pub group: i32,
    pub server_descriptors: Vec<i32>,
}

impl Place {
    pub fn examine(_: &Inherited, _: &Config, _: Manner) -> Result<Self, Error> {
        let scene = actor::scene();
        Ok(Self {
            job_control: scene.job_control,
            standing: if scene.job_control {
                Standing::InJob
            } else {
                Standing::LeadsSession
            },
            manager_has_deadline: false,
            hup: SignalUse::Stop,
            manager: None,
            stdin: scene.watches_stdin.then_some(Trigger::StdinEof),
            directory: PathBuf::new(),
            strangers: Vec::new(),
            dies_as_server: false,
            group: 0,
            server_descriptors: Vec::new(),
        })
    }
}
