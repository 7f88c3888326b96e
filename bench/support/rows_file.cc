#include "bench/support/rows_file.h"

#include <bit>
#include <fstream>
#include <stdexcept>

namespace sluice::bench {

void WriteRowsFile(const std::string& path, int64_t vocab, int64_t rows,
                   const std::vector<Distribution>& distributions) {
  std::ofstream file(path, std::ios::binary);
  std::string groups;
  int64_t first = 0;
  for (const Distribution distribution : distributions) {
    for (int64_t row = 0; row < rows && file; ++row) {
      const auto values = MakeRow(distribution, vocab, static_cast<uint32_t>(row));
      file.write(reinterpret_cast<const char*>(values.data()),
                 static_cast<std::streamsize>(values.size() * sizeof(float)));
    }
    groups += groups.empty() ? "\n" : ",\n";
    groups += "  {\"distribution\": \"" + std::string(Name(distribution)) +
              "\", \"first_row\": " + std::to_string(first) +
              ", \"rows\": " + std::to_string(rows) + "}";
    first += rows;
  }
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path);

  const std::string header = path + ".json";
  std::ofstream json(header);
  constexpr bool kIsLittle = std::endian::native == std::endian::little;
  json << "{\"dtype\": \"float32\", \"byte_order\": \"" << (kIsLittle ? "little" : "big")
       << "\", \"shape\": [" << std::to_string(first) << ", " << std::to_string(vocab)
       << "], \"groups\": [" << groups << "\n]}\n";
  json.close();
  if (!json) throw std::runtime_error("cannot write " + header);
}

}  // namespace sluice::bench
