package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
)

// mi50 is a synthetic card in the sysfs of a box, real enough for the real
// rocm-smi and for whoever reads amdgpu's files.
type mi50 struct {
	b      *box
	device string // the directory of its PCI device
	hwmon  string
}

// mi50Root is where the files lie; /sys/class and /sys/module show them.
const mi50Root = "/run/mi50"

// processorNode is the processor in the compute driver's topology.
const processorNode = mi50Root + "/kfd/kfd/topology/nodes/0"

// newMI50 plugs card number n in. Several must be plugged in one after the
// other, from 0.
func (b *box) newMI50(n int) *mi50 {
	b.t.Helper()
	if n == 0 {
		b.layClasses()
	}
	address := fmt.Sprintf("0000:%02x:00.0", 3+n)
	device := filepath.Join(mi50Root, "devices", address)
	m := &mi50{b, device, fmt.Sprintf("%s/hwmon/hwmon%d", device, 3+n)}
	render := fmt.Sprintf("renderD%d", 128+n)

	files := map[string]string{
		"vendor": "0x1002", "device": "0x66a1", "subsystem_vendor": "0x1002", "subsystem_device": "0x0834",
		"revision": "0x00", "class": "0x038000", "vbios_version": "113-D1631400-X11", "unique_id": fmt.Sprintf("%016x", 1+n),
		"uevent":             "DRIVER=amdgpu\nPCI_CLASS=38000\nPCI_ID=1002:66A1\nPCI_SUBSYS_ID=1002:0834\nPCI_SLOT_NAME=" + address,
		"mem_busy_percent":   "12",
		"pp_dpm_sclk":        "0: 925Mhz\n1: 1725Mhz *",
		"pp_dpm_mclk":        "0: 350Mhz\n1: 800Mhz *",
		"mem_info_vram_used": "12000000000", "mem_info_vram_total": "17163091968",
		"power_dpm_force_performance_level": "auto",
	}
	for name, content := range files {
		b.write(filepath.Join(device, name), content+"\n", 0o444)
	}
	for name, content := range map[string]string{
		"name": "amdgpu", "temp1_label": "edge", "temp2_label": "junction", "temp3_label": "mem",
		"temp1_crit": "100000", "temp2_crit": "100000", "temp3_crit": "94000",
		"power1_average": "178000000", "power1_cap": "225000000", "power1_cap_max": "225000000", "power1_cap_min": "0",
		"pwm1": "0", "pwm1_max": "255", "fan1_input": "0", "in0_label": "vddgfx", "in0_input": "831",
	} {
		b.write(filepath.Join(m.hwmon, name), content+"\n", 0o444)
	}
	m.set(0, 45)

	link := func(target, name string) {
		b.must(os.MkdirAll(filepath.Dir(b.path(name)), 0o755))
		b.must(os.Symlink(target, b.path(name)))
	}
	for _, node := range []string{fmt.Sprintf("card%d", n), render} {
		b.must(os.MkdirAll(b.path(device+"/drm/"+node), 0o755))
		link(device, device+"/drm/"+node+"/device")
		link(device+"/drm/"+node, mi50Root+"/drm/"+node)
	}
	link(m.hwmon, mi50Root+"/hwmon/"+filepath.Base(m.hwmon))

	// The compute driver's view: node 0 is the processor.
	node := fmt.Sprintf("%s/kfd/kfd/topology/nodes/%d", mi50Root, 1+n)
	properties := map[string]int{
		"cpu_cores_count": 0, "simd_count": 240, "array_count": 4, "simd_arrays_per_engine": 1, "cu_per_simd_array": 15, "simd_per_cu": 4,
		"gfx_target_version": 90006, "vendor_id": 0x1002, "device_id": 0x66a1, "location_id": (3 + n) << 8, "domain": 0,
		"drm_render_minor": 128 + n, "hive_id": 0, "unique_id": 1 + n,
	}
	b.write(node+"/gpu_id", fmt.Sprintln(47323+n), 0o444)
	b.write(node+"/name", "vega20\n", 0o444)
	b.write(node+"/properties", lines(properties), 0o444)
	b.write(node+"/io_links/0/properties", lines(map[string]int{"type": 2, "node_from": 1 + n, "node_to": 0, "weight": 20}), 0o444)
	b.write(fmt.Sprintf("%s/io_links/%d/properties", processorNode, n), lines(map[string]int{"type": 2, "node_from": 0, "node_to": 1 + n, "weight": 20}), 0o444)
	return m
}

// layClasses puts directories of ours over /sys/class/{drm,kfd,hwmon} and
// /sys/module, and leaves the other classes as they are.
func (b *box) layClasses() {
	b.t.Helper()
	for _, class := range []string{"drm", "kfd/kfd/proc", "hwmon"} {
		b.must(os.MkdirAll(b.path(mi50Root+"/"+class), 0o755))
	}
	b.write(mi50Root+"/module/amdgpu/initstate", "live\n", 0o444)
	b.write(processorNode+"/gpu_id", "0\n", 0o444)
	b.write(processorNode+"/properties", lines(map[string]int{"cpu_cores_count": 16, "simd_count": 0, "location_id": 0, "domain": 0, "hive_id": 0}), 0o444)

	b.sh("sh", "-c", `set -e
root=$1
mkdir "$root/class"
for class in /sys/class/*; do
  name=${class##*/}
  mkdir "$root/class/$name"
  mount --bind "$class" "$root/class/$name"
done
mkdir -p "$root/class/drm" "$root/class/kfd" "$root/class/hwmon"
mount -o remount,rw /sys
mkdir -p /sys/module
mount --bind "$root/module" /sys/module
mount --rbind "$root/class" /sys/class
for name in drm kfd hwmon; do mount --bind "$root/$name" "/sys/class/$name"; done`, "sh", mi50Root)
}

// lines are the properties of a topology node, as the kernel prints them.
func lines(properties map[string]int) string {
	var out strings.Builder
	for name, value := range maps.All(properties) {
		fmt.Fprintln(&out, name, value)
	}
	return out.String()
}

// set changes what the card's sensors say: busy percent, and °C at the
// junction.
func (m *mi50) set(busy, junction int) {
	m.b.t.Helper()
	m.b.write(m.device+"/gpu_busy_percent", fmt.Sprintln(busy), 0o444)
	for sensor, cooler := range map[string]int{"temp1_input": 5, "temp2_input": 0, "temp3_input": 9} {
		m.b.write(m.hwmon+"/"+sensor, fmt.Sprintln((junction-cooler)*1000), 0o444)
	}
}
