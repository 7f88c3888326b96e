/* The C interface of Sluice: everything that the C++ one does with plain data, as C99.
 *
 * A function does what its C++ namesake does (sluice_select is sluice::Select) and gives the same
 * bits; the notes here are about what C adds. The rules of the whole interface:
 *
 * - Calls that can fail return a sluice_status, SLUICE_OK or why not; sluice_last_error() is then
 *   the text. They check before they write: after an error no output has changed, unless a
 *   callback failed. Trouble inside one row is not an error but that row's sluice_row_status.
 * - The caller owns all memory. Arrays are a pointer and a number of elements; a null pointer is
 *   fine for none. Nothing is kept after a call returns but what sluice_sampler_create and
 *   sluice_sampler_add copy, and the pointers to the weights and the bias of a certified head. Only
 *   those two, sluice_validate, sluice_explain with its sentence, what makes, loads and saves
 *   planes, sluice_certified_head_create and a failing call allocate.
 * - No exception leaves a call, and a callback must neither throw nor longjmp.
 * - Calls may run concurrently as long as they write to different memory; a sampler is used by one
 *   thread at a time.
 * - Fill structs with their _init function, then set what you need. The functions are in these
 *   headers, so that they write exactly the struct that the caller was compiled with.
 *
 * The binary interface has one number, SLUICE_ABI_VERSION, in place of a size in every struct:
 * most structs are elements of arrays (one a row), where a size each would cost memory and time.
 * sluice_execution_init, sluice_sampler_options_init, sluice_explain_input_init and
 * sluice_plane_options_init store the number, and every call that takes one of the four refuses
 * another number than the library's own (SLUICE_UNAVAILABLE). It changes whenever a struct, a value
 * or a function does so in a way that compiled programs would notice; it is also the SOVERSION of
 * the shared library.
 */
#pragma once

#include "sluice/c/base.h"
#include "sluice/c/certified_head.h"
#include "sluice/c/certified_sample.h"
#include "sluice/c/explain.h"
#include "sluice/c/params.h"
#include "sluice/c/rows.h"
#include "sluice/c/sampler.h"
#include "sluice/c/shards.h"
