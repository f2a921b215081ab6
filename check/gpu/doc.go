// Package gpu looks at a GPU and decides whether it has run too long or too hot.
package gpu
