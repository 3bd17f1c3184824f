//! The providers of a resource: each key with its prefix, in the order in which they are tried.
//!
//! As upstream (`storage/value/transformer.go`): a value is opened by the first that has its prefix and succeeds, since providers may
//! share a prefix with different keys; a value is written by the first of all. What another than the first has opened is stale.

use crate::ciphers::{Cipher, Fault, Unopened};
use bytes::Bytes;
use std::sync::Arc;
use steersman_storage::kv::transformed::{Form, Opened, SEALED};

#[derive(Clone, Debug, Default)]
pub(crate) struct Chain(Vec<Link>);

#[derive(Clone, Debug)]
pub(crate) enum Link {
    Cipher {
        prefix: Bytes,
        cipher: Arc<dyn Cipher>,
    },
    /// Values as they are. It opens nothing that is encrypted.
    Identity,
}

impl Chain {
    pub(crate) fn extend(&mut self, links: &[Link]) {
        self.0.extend_from_slice(links);
    }

    /// Whether it encrypts, or has encrypted, anything.
    pub(crate) fn has_cipher(&self) -> bool {
        self.0.iter().any(|link| matches!(link, Link::Cipher { .. }))
    }

    pub(crate) fn seal(&self, key: &[u8], value: &Bytes) -> Result<Bytes, Fault> {
        match self.0.first() {
            Some(Link::Cipher { prefix, cipher }) => {
                // Room for the prefix, nonces, tag and padding; an envelope takes more.
                let mut out = Vec::with_capacity(prefix.len() + value.len() + 128);
                out.extend_from_slice(prefix);
                cipher.seal(key, value, &mut out)?;
                Ok(out.into())
            }
            Some(Link::Identity) | None => Ok(value.clone()),
        }
    }

    pub(crate) fn open(&self, key: &[u8], stored: &Bytes) -> Result<Opened, Unopened> {
        let (mut first_fault, mut is_lacking) = (None, false);
        for (at, link) in self.0.iter().enumerate() {
            let opened = match link {
                Link::Identity if stored.starts_with(SEALED) => continue,
                Link::Identity => Ok((stored.clone(), Form::Current)),
                Link::Cipher { prefix, cipher } => match stored.strip_prefix(&**prefix) {
                    Some(body) => cipher.open(key, body).map(|(value, form)| (Bytes::from(value), form)),
                    None => continue,
                },
            };
            match opened {
                Ok((value, form)) => return Ok(Opened { value, form: if at == 0 { form } else { Form::Stale } }),
                Err(Unopened::Fault(fault)) => drop(first_fault.get_or_insert(fault)),
                Err(Unopened::Lacking) => is_lacking = true,
            }
        }
        Err(match is_lacking {
            true => Unopened::Lacking,
            false => Unopened::Fault(first_fault.unwrap_or(Fault::NoProvider)),
        })
    }
}
