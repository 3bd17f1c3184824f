//! How kubelets are called, from the options.

use crate::Failure;
use crate::access::client_certificate;
use crate::args::KubeletOptions;
use steersman_server::KubeletClient;

/// Reads the files that the options name.
pub(crate) fn given(options: KubeletOptions) -> Result<KubeletClient, Failure> {
    let identity = client_certificate::read(
        ("--kubelet-client-certificate", options.kubelet_client_certificate.as_ref()),
        ("--kubelet-client-key", options.kubelet_client_key.as_ref()),
    )?;
    let authority = options.kubelet_certificate_authority;
    let authority = authority.map(|path| client_certificate::authority("--kubelet-certificate-authority", &path));
    Ok(KubeletClient {
        identity,
        authority: authority.transpose()?,
        address_types: options.kubelet_preferred_address_types,
        port: options.kubelet_port,
        dial_timeout: options.kubelet_timeout,
    })
}
