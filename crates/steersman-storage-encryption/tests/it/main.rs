//! Encryption at rest over real engines, and with a key management service.

#[cfg(test)]
mod kms;
#[cfg(test)]
mod local;
#[cfg(test)]
mod plugin;
#[cfg(test)]
mod support;
