//! OpenStack Neutron and Keystone: requests, error classes, and an in-memory double.
