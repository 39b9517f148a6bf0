import{b as r}from"./chunk-GMVUPNE6.js";import{m18 as e}from"./core-YMMWPISW.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
