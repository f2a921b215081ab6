package gpu

// Number is a reading that may be missing. The zero value is "no reading",
// which is neither zero nor idle nor cool.
type Number struct {
	Value float64
	Known bool
}

// Known is a number that was read.
func Known(v float64) Number { return Number{Value: v, Known: true} }

// Reading is what one look says about one card.
type Reading struct {
	Card        string // what reports call it: the PCI address (lower case, with domain) where the source gives it, else as the tool prints it (card1, GPU[1], 1), else "gpu"
	Index       string // the source's own number of it ("1"), "" if it gives none
	Unique      string // the unique id in lower-case hex without 0x, "" if the source gives none
	Busy        Number // 0..100 %
	Junction    Number // °C, above 0 and below 150; never edge, never an unlabelled sensor
	Power       Number // W
	HasJunction bool   // it has a junction sensor, readable or not: a discrete card, and not the iGPU beside it
	Suspended   bool   // runtime-suspended: nothing was read, so as not to wake it; it counts as known idle
	Why         string // what could not be read and why, in plain words; "" if everything could
}
