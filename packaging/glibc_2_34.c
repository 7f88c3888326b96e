/* What the compiler's run-time libraries call of glibc 2.35 and 2.36 once they are linked in, in
 * terms of older calls, so that a release runs on glibc 2.34. Hidden: nothing else in a process
 * gets it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct Search {
  ElfW(Addr) address;
  struct dl_find_object* result;
};

static int Visit(struct dl_phdr_info* object, size_t size, void* data) {
  const struct Search* search = data;
  const ElfW(Phdr)* frames = NULL;
  const ElfW(Phdr)* found = NULL;
  (void)size;
  for (size_t i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)* header = &object->dlpi_phdr[i];
    const ElfW(Addr) start = object->dlpi_addr + header->p_vaddr;
    if (header->p_type == PT_GNU_EH_FRAME) frames = header;
    if (header->p_type == PT_LOAD && search->address - start < header->p_memsz) found = header;
  }
  if (found == NULL || frames == NULL) return 0;
  search->result->dlfo_map_start = (void*)(object->dlpi_addr + found->p_vaddr);
  search->result->dlfo_map_end = (void*)(object->dlpi_addr + found->p_vaddr + found->p_memsz);
  search->result->dlfo_eh_frame = (void*)(object->dlpi_addr + frames->p_vaddr);
  return 1;
}

/* The unwinder of libgcc_eh.a finds the frames of a program counter by it. */
__attribute__((visibility("hidden"))) int _dl_find_object(void* address,
                                                          struct dl_find_object* result) {
  struct Search search = {(ElfW(Addr))address, result};
  memset(result, 0, sizeof *result);
  return dl_iterate_phdr(Visit, &search) == 1 ? 0 : -1;
}

/* std::random_device. */
__attribute__((visibility("hidden"))) uint32_t arc4random(void) {
  uint32_t bits;
  if (getrandom(&bits, sizeof bits, 0) != sizeof bits) abort();
  return bits;
}
