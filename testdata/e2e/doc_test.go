// Package e2e boots throw-away machines and runs tickdog there as it is
// installed on real ones: under systemd's timers, against the real rocm-smi
// over a synthetic card, a real dockerd with a real container, real uvicorn
// agents, and agents made with the A2A SDKs. Only limits and intervals are
// shorter than on a real machine, by configuration.
//
// It needs root, and on Debian the packages systemd-container,
// dbus-user-session, docker.io, rocm-smi, python3-uvicorn and
// python3-starlette:
//
//	TICKDOG_E2E=1 go test -v ./testdata/e2e
package e2e
